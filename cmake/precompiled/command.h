// What the command `accel`, which knows nothing of LibTorch, and its tests
// include, and the templates of it that many of their sources use.
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <deque>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <thread>
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
inline void accel_precompiled_options(CLI::App& app, std::string& text, int& number, bool& flag) {
  app.add_option("--text", text, "");
  app.add_option("--number", number, "");
  app.add_flag("--flag", flag, "");
}
