# The sources, fetched by CMake into a project: fetch_content.sh ARCHIVE LIBTORCH MIGRATED DATA FOLDER
# Compiled fast; whether the build works at all is what is looked at.
set -euo pipefail
archive=$1 libtorch=$2 migrated=$3 data=$4 folder=$5
export ACCEL_LIBTORCH=$libtorch OMP_NUM_THREADS=1
mkdir -p "$folder/project"
cp "$migrated" "$folder/project/train.cpp"
cat >"$folder/project/CMakeLists.txt" <<CMAKE
cmake_minimum_required(VERSION 3.23)
project(train C CXX)
include(FetchContent)
set(ACCEL_BUILD_TOOL OFF)
set(ACCEL_UNITY_BUILD ON)
FetchContent_Declare(accel URL "$archive" DOWNLOAD_EXTRACT_TIMESTAMP ON)
FetchContent_MakeAvailable(accel)
add_executable(train train.cpp)
target_link_libraries(train PRIVATE accel::accel)
CMAKE
cd "$folder"
cmake -G Ninja -S project -B build -DCMAKE_CXX_COMPILER=clang++-19 -DCMAKE_C_COMPILER=clang-19 -DCMAKE_BUILD_TYPE=Release \
  -DCMAKE_CXX_FLAGS_RELEASE="-O0 -DNDEBUG" >cmake.log 2>&1 || { tail -n 30 cmake.log; exit 1; }
ninja -C build train accel >>cmake.log 2>&1 || { grep -A 15 FAILED cmake.log | head -n 40; exit 1; }
build/bin/accel launch -n 2 --output main -- $(find build -name train -type f -perm -1 | head -n 1) --data "$data" --epochs 1 |
  tee out.txt | tail -n 1
grep -q '^Test set: Average loss:' out.txt
echo "ok: FetchContent: built with the project, trained as two processes"
