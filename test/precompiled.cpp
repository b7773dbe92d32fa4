// The executables that carry the precompiled headers of the tests: what is
// compiled with them needs flags like theirs, and so has to be an executable.

int main() {}
