# The tarball, unpacked in two places one after the other: tarball.sh TARBALL LIBTORCH EXAMPLE FOLDER
set -euo pipefail
tarball=$1 libtorch=$2 example=$3 folder=$4
export ACCEL_LIBTORCH=$libtorch OMP_NUM_THREADS=1 NO_COLOR=1
fail() { echo "FAILED: $*" >&2; exit 1; }
mkdir -p "$folder/one" "$folder/two"
tar -C "$folder/one" -xf "$tarball"
mv "$folder/one"/accel-* "$folder/two/accel"
prefix=$folder/two/accel
export PATH=$prefix/bin:$PATH
cd "$folder"
cp "$example/digits.cpp" "$example/digits.csv" .
accel-migrate --quiet --write digits.cpp
mkdir -p project && cp digits.cpp project/train.cpp
cat >project/CMakeLists.txt <<'CMAKE'
cmake_minimum_required(VERSION 3.18)
project(train CXX)
find_package(accel 0.1 REQUIRED)
add_executable(train train.cpp)
target_link_libraries(train PRIVATE accel::accel)
CMAKE
cmake -S project -B build -DCMAKE_PREFIX_PATH="$prefix" >cmake.log || { cat cmake.log; fail "CMake did not find accel"; }
cmake --build build >>cmake.log || { cat cmake.log; fail "the program was not built"; }
accel launch -n 2 --output main -- build/train --epochs 1 | tee out.txt | tail -n 1
grep -q '^Test set: Average loss:' out.txt || fail "the program was not trained"
find "$prefix" \( -name 'libtorch*' -o -name 'libc10*' \) | grep . && fail "LibTorch is in the tarball"
echo "ok: the tarball: unpacked, moved, find_package(accel), trained as two processes"
