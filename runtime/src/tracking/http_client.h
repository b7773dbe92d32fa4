#pragma once

#include "tracking/http_transport.h"

#include <map>
#include <memory>
#include <string>

namespace accel::detail {

/// Talks to one HTTP server. Only there where accel was built with cpp-httplib.
class HttpClient {
 public:
  /// `address` is `http://host:port`, or https where it is built in. Throws
  /// for anything else.
  HttpClient(
      const std::string& address,
      const std::string& token,
      const std::string& user,
      const std::string& password);

  /// Throws when there is no answer in three attempts; what a server answers
  /// is returned, errors included.
  HttpResponse get(
      const std::string& path,
      const std::map<std::string, std::string>& query);
  HttpResponse post(const std::string& path, const std::string& json);

  static bool is_available();

 private:
  std::string address_;
  std::unique_ptr<HttpTransport> transport_;
};

} // namespace accel::detail
