# The Debian packages, where they are used: run by scripts/check-packages as root
# of a name space in which / is a copy of this system that lasts as long as this
# script, without the sources and without LLVM.
#
#   debian.sh FOLDER    with the packages, digits.cpp, digits.csv and FOLDER/libtorch
set -euo pipefail
cd "$1"
export LC_ALL=C.UTF-8 HOME=$1 NO_COLOR=1 OMP_NUM_THREADS=1
run() { printf '$ %s\n' "$*" | tee -a transcript.txt; bash -c "$*" 2>&1 | tee -a transcript.txt; }
fail() { echo "FAILED: $*" >&2; exit 1; }
# Where packages put things: other folders of the system below may change meanwhile.
list() { find /usr /etc /opt /bin /sbin /lib /var -xdev \( -path /var/lib/dpkg -o -path /var/log -o -path /var/cache -o -path /var/tmp \) \
  -prune -o -print | sort; }

! command -v accel accel-migrate || fail "an accel is installed already"
[ ! -e /usr/lib/llvm-19/lib ] || fail "LLVM is still to be seen"
list >before.txt
cp digits.cpp original.cpp

# The five commands of the documentation.
run dpkg -i accel-migrate_*.deb libaccel-dev_*.deb
export ACCEL_LIBTORCH=$PWD/libtorch
echo "\$ export ACCEL_LIBTORCH=$ACCEL_LIBTORCH" >>transcript.txt
run accel-migrate --write digits.cpp
run 'c++ -O1 $(accel flags --compile) digits.cpp $(accel flags --link) -o digits'
run accel launch -n 2 -- ./digits --epochs 1

# The same numbers as the original's, printed once, by hand.
c++ -O1 $(accel flags --compile) original.cpp $(accel flags --link) -o original
./original --double --epochs 1 >original.txt
accel launch -n 2 --output main -- ./digits --double --epochs 1 >digits.txt
python3 - <<'PY'
import re
texts = [open(name).read().split() for name in ("original.txt", "digits.txt")]
assert len(texts[0]) == len(texts[1]) > 50, "different lengths"
for a, b in zip(*texts):
    if a != b:
        x, y = (float(re.sub("[()%]", "", part)) for part in (a, b))
        assert abs(x - y) <= 1e-9 * max(abs(x), abs(y)), (a, b)
print("two processes print the original's", len(texts[0]), "words, numbers within 1e-9")
PY
run accel verify --original ./original --migrated ./digits --num-processes 2 --double --max-steps 4 --no-repeat -- --epochs 1

# find_package.
mkdir -p cmake-project && cp digits.cpp cmake-project/train.cpp
cat >cmake-project/CMakeLists.txt <<'CMAKE'
cmake_minimum_required(VERSION 3.18)
project(train CXX)
find_package(accel 0.1 REQUIRED)
add_executable(train train.cpp)
target_link_libraries(train PRIVATE accel::accel)
CMAKE
run 'cmake -S cmake-project -B cmake-build >/dev/null && cmake --build cmake-build >/dev/null'
run 'accel launch -n 2 --output main -- cmake-build/train --epochs 1 | tail -n 1'
[ -e digits.pt ] || fail "the trained program has saved no model"

man -w accel-migrate accel-launch >/dev/null || fail "the man pages are not found"
for package in accel-migrate libaccel-dev; do
  declared=$(dpkg-query -W -f '${Depends}' "$package" | sed -n 's/.*libc6 (>= \([0-9.]*\)).*/\1/p')
  for file in $(dpkg -L "$package" | grep -E '^/usr/(bin/|lib/lib.*\.so)'); do
    [ ! -L "$file" ] || continue
    needed=$(objdump -T "$file" | sed -n 's/.*GLIBC_\([0-9.]*\).*/\1/p' | sort -uV | tail -n 1)
    [ "$(printf '%s\n' "$needed" "$declared" | sort -V | tail -n 1)" = "$declared" ] ||
      fail "$package depends on libc6 $declared, but $file needs $needed"
    ! strings -a "$file" | grep -E "^(/work|/home|/root|/tmp)/" || fail "$file holds folders of the machine that built it"
    stripped=$(readelf -S "$file" | grep -c '\.symtab' || true)
    [ "$stripped" = 0 ] || fail "$file is not stripped"
  done
done
! dpkg -L accel-migrate libaccel-dev | grep -E 'libtorch|libc10|gloo' || fail "LibTorch is in the packages"

run dpkg --purge accel-migrate libaccel-dev
list >after.txt
diff before.txt after.txt || fail "something has stayed"
echo "ok: the Debian packages: installed, migrated, compiled, trained as two processes, removed without a trace"
