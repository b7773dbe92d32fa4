// Carries the precompiled header of the end-to-end programs.
