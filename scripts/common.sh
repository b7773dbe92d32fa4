# Shared by the scripts of this folder; to be sourced, not run.

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# One folder and one set of objects for all that is tried and tested; a release
# for use: cmake --preset release (README.md).
PRESET=${PRESET:-quick}
BUILD=${ACCEL_BUILD_DIR:-$ROOT/build/$PRESET}
STARTED=$SECONDS

say() { printf '\033[1m==> %s\033[0m\n' "$*" | if [ -t 1 ]; then cat; else sed 's/\x1b\[[0-9;]*m//g'; fi; }
die() { printf 'error: %s\n' "$*" >&2; exit 1; }

# minutes SECONDS
minutes() { printf '%d:%02d' $(($1 / 60)) $(($1 % 60)); }

# Compile flags are words: they would break at a space.
case $ROOT in
  *[[:space:]]*) die "the path of this clone has a space in it ('$ROOT'), which compile flags cannot carry; move it: mv '$ROOT' DIR" ;;
esac

# show_progress LOG: reads what ninja says, keeps it in LOG, and shows how far it
# is: in one line of a terminal, as a line for each tenth elsewhere.
show_progress() {
  local line done total tenth last=0
  while IFS= read -r line; do
    printf '%s\n' "$line" >&3
    [[ $line =~ ^\[([0-9]+)/([0-9]+)\]\ (.*) ]] || continue
    done=${BASH_REMATCH[1]} total=${BASH_REMATCH[2]}
    if [ -t 1 ]; then
      printf '\r\033[K    %3d %%  %d of %d  %s' $((done * 100 / total)) "$done" "$total" "${BASH_REMATCH[3]:0:60}"
      [ "$done" -lt "$total" ] || printf '\r\033[K'
    else
      tenth=$((done * 10 / total))
      if [ "$tenth" -gt "$last" ]; then
        printf '    %3d %%  %d of %d steps\n' $((tenth * 10)) "$done" "$total"
        last=$tenth
      fi
    fi
  done 3>>"$1"
}

# cmake_error LOG: the first error's text in one line.
cmake_error() {
  awk '/^CMake Error/ { sub(/^CMake Error( at [^ ]+ \(message\))?: */, ""); found = 1 }
       found && (/^Call Stack/ || (/^$/ && empty)) { exit }
       found { empty = /^$/ ; sub(/^ +/, ""); if ($0 != "") printf "%s ", $0 }' "$1" | sed 's/ *$//'
}

# why_it_failed LOG: the reason in one line, where it is one that has a remedy.
why_it_failed() {
  if grep -qE 'No space left on device|Disk quota exceeded' "$1" || [ "$(df -Pk "$BUILD" | awk 'NR == 2 { print $4 }')" -lt 2048 ]; then
    die "the disk of $BUILD is full; make room (the build needs 2 GB) and start again, which goes on where it was"
  fi
  if grep -qE 'Killed|killed signal|Cannot allocate memory' "$1"; then
    die "a compiler was ended for lack of memory (one needs 1.5 GB); with fewer at a time: CMAKE_BUILD_PARALLEL_LEVEL=1 $0"
  fi
}

# configure_and_build TARGET...: the preset $PRESET, incrementally; with
# CMAKE_BUILD_PARALLEL_LEVEL that many jobs at a time, as in cmake --build.
configure_and_build() {
  local log=$BUILD/build.log started=$SECONDS
  mkdir -p "$BUILD" 2>/dev/null && touch "$BUILD/lock" 2>/dev/null ||
    die "$BUILD cannot be written; with the build in another folder: ACCEL_BUILD_DIR=DIR $0"
  # Of two at a time in one folder each would undo the other's files.
  exec 9>"$BUILD/lock"
  if ! flock -n 9; then
    say "Another build is at work in $BUILD: waiting for its end (a folder of its own: ACCEL_BUILD_DIR=DIR $0)"
    flock 9
  fi
  command -v clang++-19 >/dev/null ||
    die "clang++-19, which builds accel, is not installed: scripts/setup installs it, or as root: apt-get install clang-19"
  say "Configuring and building in ${BUILD#"$ROOT"/} (log: ${log#"$ROOT"/})"
  if ! cmake -S "$ROOT" --preset "$PRESET" -B "$BUILD" >"$log" 2>&1 9>&-; then
    why_it_failed "$log"
    die "$(cmake_error "$log") All of what cmake said is in $log"
  fi
  if ! ninja -C "$BUILD" ${CMAKE_BUILD_PARALLEL_LEVEL:+-j "$CMAKE_BUILD_PARALLEL_LEVEL"} "$@" 2>&1 9>&- | show_progress "$log"; then
    why_it_failed "$log"
    grep -E -A 15 'FAILED:|error:' "$log" | head -n 60 >&2 || tail -n 40 "$log" >&2
    die "the build failed; all of what it said is in $log"
  fi
  exec 9>&-
  say "Built in $(minutes $((SECONDS - started))) min"
}
