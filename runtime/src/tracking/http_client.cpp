#include "tracking/http_client.h"

#include <c10/util/Exception.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <thread>

#include <dlfcn.h>

namespace accel::detail {
namespace {

struct Library {
  HttpConnect connect = nullptr;
  HttpHasHttps has_https = nullptr;
  std::string error;
};

/// libaccel_http, which lies beside libaccel.
Library load() {
  Library library;
  Dl_info own{};
  if (::dladdr(reinterpret_cast<const void*>(&load), &own) == 0) {
    library.error = "the place of libaccel is unknown";
    return library;
  }
  const auto path = std::filesystem::path(own.dli_fname).parent_path() /
      "libaccel_http.so";
  void* handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    library.error = ::dlerror();
    return library;
  }
  library.connect =
      reinterpret_cast<HttpConnect>(::dlsym(handle, "accel_http_connect"));
  library.has_https =
      reinterpret_cast<HttpHasHttps>(::dlsym(handle, "accel_http_has_https"));
  if (library.connect == nullptr || library.has_https == nullptr) {
    library = Library();
    library.error = path.string() + " is of another version";
  }
  return library;
}

const Library& library() {
  static const Library loaded = load();
  return loaded;
}

/// A server that is being restarted answers a moment later.
HttpResponse attempt(
    const std::string& address,
    const std::function<std::string(HttpResponse&)>& request) {
  std::string reason;
  for (int i = 0; i < 3; ++i) {
    if (i > 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(200 << (2 * i)));
    }
    HttpResponse response;
    reason = request(response);
    if (reason.empty()) {
      return response;
    }
  }
  TORCH_CHECK(
      false, "The server ", address, " does not answer: ", reason, ".");
}

} // namespace

HttpClient::HttpClient(
    const std::string& address,
    const std::string& token,
    const std::string& user,
    const std::string& password)
    : address_(address) {
  TORCH_CHECK(
      is_available(),
      "This accel cannot use HTTP (",
      library().error,
      "): cpp-httplib was not found when it was built, or is not there now. "
      "Install it (Debian: libcpp-httplib-dev) and build again.");
  const bool http = address.rfind("http://", 0) == 0;
  const bool https = address.rfind("https://", 0) == 0;
  TORCH_CHECK(
      http || https,
      "The address of the server must be http://host:port, but is '",
      address,
      "'.");
  TORCH_CHECK(
      http || library().has_https(),
      "This build of accel has no https, which ",
      address,
      " needs: cpp-httplib was found without OpenSSL.");
  transport_.reset(library().connect(address, token, user, password));
}

HttpResponse HttpClient::get(
    const std::string& path,
    const std::map<std::string, std::string>& query) {
  return attempt(address_, [&](HttpResponse& response) {
    return transport_->get(path, query, response);
  });
}

HttpResponse HttpClient::post(
    const std::string& path,
    const std::string& json) {
  return attempt(address_, [&](HttpResponse& response) {
    return transport_->post(path, json, response);
  });
}

bool HttpClient::is_available() {
  return library().connect != nullptr;
}

} // namespace accel::detail
