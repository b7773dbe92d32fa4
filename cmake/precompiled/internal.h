// On top of torch.h: what the runtime's sources include besides, and the
// templates of it that many of them use.
#include <nlohmann/json.hpp>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <iostream>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

// Never called: what it uses is instantiated here, once, instead of in every
// source that uses it, too.
inline std::string accel_precompiled_json(const std::string& text) {
  nlohmann::json value = nlohmann::json::parse(text);
  value["string"] = text;
  value["integer"] = int64_t{1};
  value["float"] = 1.0;
  value["array"] = nlohmann::json::array({1});
  std::string result = value.dump() + value.dump(2) + value.at("string").get<std::string>();
  for (const auto& [key, member] : value.items())
    result += key + std::to_string(member.value("size", int64_t{0}) + member.get<int64_t>());
  return result;
}
