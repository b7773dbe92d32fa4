// libaccel_http: cpp-httplib behind the interface that libaccel loads.

#include "tracking/http_transport.h"

#include <httplib.h>

#include <chrono>

namespace accel::detail {
namespace {

class Httplib final : public HttpTransport {
 public:
  Httplib(
      const std::string& address,
      const std::string& token,
      const std::string& user,
      const std::string& password)
      : client_(address) {
    client_.set_connection_timeout(std::chrono::seconds(10));
    client_.set_read_timeout(std::chrono::seconds(30));
    client_.set_keep_alive(true);
    if (!token.empty()) {
      client_.set_bearer_token_auth(token);
    } else if (!user.empty()) {
      client_.set_basic_auth(user, password);
    }
  }

  std::string get(
      const std::string& path,
      const std::map<std::string, std::string>& query,
      HttpResponse& response) override {
    const httplib::Params parameters(query.begin(), query.end());
    return answer(
        client_.Get(path, parameters, httplib::Headers()), response);
  }

  std::string post(
      const std::string& path,
      const std::string& json,
      HttpResponse& response) override {
    return answer(client_.Post(path, json, "application/json"), response);
  }

 private:
  static std::string answer(
      const httplib::Result& result,
      HttpResponse& response) {
    if (!result) {
      return httplib::to_string(result.error());
    }
    response = {result->status, result->body};
    return "";
  }

  httplib::Client client_;
};

} // namespace
} // namespace accel::detail

extern "C" __attribute__((visibility("default")))
accel::detail::HttpTransport*
accel_http_connect(
    const std::string& address,
    const std::string& token,
    const std::string& user,
    const std::string& password) {
  return new accel::detail::Httplib(address, token, user, password);
}

extern "C" __attribute__((visibility("default"))) bool accel_http_has_https() {
#if defined(CPPHTTPLIB_OPENSSL_SUPPORT)
  return true;
#else
  return false;
#endif
}
