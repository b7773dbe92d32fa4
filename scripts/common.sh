# Shared by the scripts of this folder; to be sourced, not run.

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# What is used is compiled with all optimisation; what is only tested without,
# which is three times as fast to compile.
PRESET=${PRESET:-release}
BUILD=${ACCEL_BUILD_DIR:-$ROOT/build/$PRESET}

say() { printf '\033[1m==> %s\033[0m\n' "$*" | if [ -t 1 ]; then cat; else sed 's/\x1b\[[0-9;]*m//g'; fi; }
die() { printf 'error: %s\n' "$*" >&2; exit 1; }

# configure_and_build TARGET...: the preset $PRESET, incrementally; with
# CMAKE_BUILD_PARALLEL_LEVEL that many jobs at a time, as in cmake --build.
configure_and_build() {
  local log=$BUILD/build.log
  mkdir -p "$BUILD"
  say "Configuring and building in ${BUILD#"$ROOT"/} (log: ${log#"$ROOT"/})"
  if ! cmake -S "$ROOT" --preset "$PRESET" -B "$BUILD" >"$log" 2>&1; then
    tail -n 30 "$log" >&2
    die "cmake failed"
  fi
  if ! ninja -C "$BUILD" ${CMAKE_BUILD_PARALLEL_LEVEL:+-j "$CMAKE_BUILD_PARALLEL_LEVEL"} "$@" >>"$log" 2>&1; then
    grep -E -A 15 'FAILED:|error:' "$log" | head -n 60 >&2 || tail -n 40 "$log" >&2
    die "the build failed"
  fi
}
