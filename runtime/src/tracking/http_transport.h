#pragma once

#include <map>
#include <memory>
#include <string>

/// What libaccel and libaccel_http, which it loads when a tracker speaks HTTP,
/// know of each other. So programs need cpp-httplib and what that needs only
/// where they use it.
namespace accel::detail {

struct HttpResponse {
  int status = 0;
  std::string body;
};

class HttpTransport {
 public:
  virtual ~HttpTransport() = default;

  /// One attempt. Returns why there was no answer; empty where there was one.
  virtual std::string get(
      const std::string& path,
      const std::map<std::string, std::string>& query,
      HttpResponse& response) = 0;
  virtual std::string post(
      const std::string& path,
      const std::string& json,
      HttpResponse& response) = 0;
};

/// How a transport is made, and whether it knows https: the symbols
/// `accel_http_connect` and `accel_http_has_https`.
using HttpConnect = HttpTransport* (*)(const std::string& address,
                                       const std::string& token,
                                       const std::string& user,
                                       const std::string& password);
using HttpHasHttps = bool (*)();

} // namespace accel::detail
