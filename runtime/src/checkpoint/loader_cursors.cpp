#include "checkpoint/loader_cursors.h"

#include "checkpoint/files.h"
#include "checkpoint/json.h"

#include <accel/data/cursor.h>
#include <accel/data/sharding.h>

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>
#include <vector>

namespace accel::checkpoint {

namespace {

using accel::detail::LoaderCursor;
using accel::detail::ResumableLoader;

std::string to_hex(const void* data, size_t size) {
  static const char* const digits = "0123456789abcdef";
  std::string text;
  text.reserve(2 * size);
  for (size_t i = 0; i < size; ++i) {
    const auto byte = static_cast<const unsigned char*>(data)[i];
    text += digits[byte >> 4];
    text += digits[byte & 15];
  }
  return text;
}

std::string from_hex(const std::string& text, const std::string& what) {
  const auto value = [&](char c) {
    TORCH_CHECK(
        (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'),
        what,
        ": there is something else where hexadecimal digits must be");
    return c <= '9' ? c - '0' : c - 'a' + 10;
  };
  TORCH_CHECK(text.size() % 2 == 0, what, ": half a byte");
  std::string bytes;
  for (size_t i = 0; i < text.size(); i += 2) {
    bytes += static_cast<char>(value(text[i]) << 4 | value(text[i + 1]));
  }
  return bytes;
}

std::string describe(const LoaderCursor& cursor) {
  return "sampler " + cursor.sampler + ", data set of size " +
      (cursor.size < 0 ? "unknown" : std::to_string(cursor.size)) +
      ", batch size " + std::to_string(cursor.batch_size) +
      (cursor.drop_last ? ", drop_last" : "");
}

void check_can_be_saved(const LoaderCursor& cursor) {
  if (!cursor.in_pass) {
    return;
  }
  TORCH_CHECK(
      cursor.in_body,
      "accel: save_state was called while a data loader (",
      describe(cursor),
      ") is in the middle of a pass, after ",
      cursor.batches,
      " batches, but outside of its loop body as far as accel can see, so that "
      "it is not known whether the pass goes on. Inside of the loop: keep what "
      "accelerator.accumulate returns until the end of the body, save there, "
      "and do not advance the loader's iterator before. If the loop was left "
      "by break, and something still holds a tensor of its last batch: call "
      "accelerator.leave(*loader), or let the loader go out of scope.");
  TORCH_CHECK(
      cursor.in_order,
      "accel: a data loader (",
      describe(cursor),
      ") with enforce_ordering(false) has given batches out of order, so that "
      "its place cannot be saved in the middle of a pass. Save between passes "
      "or set enforce_ordering(true).");
}

Json cursor_to_json(const LoaderCursor& cursor) {
  Json json;
  json["sampler"] = cursor.sampler;
  json["size"] = cursor.size;
  json["batch_size"] = cursor.batch_size;
  json["drop_last"] = cursor.drop_last;
  json["sampler_state"] =
      to_hex(cursor.sampler_state.data(), cursor.sampler_state.size());
  json["in_pass"] = cursor.in_pass;
  if (cursor.in_pass) {
    json["sharing"] = cursor.sharing;
    json["world_size"] = cursor.world;
    json["batches"] = cursor.batches;
    // JSON's numbers end at 2^53 for many readers.
    json["fingerprint"] =
        to_hex(&cursor.fingerprint, sizeof cursor.fingerprint);
    const auto generator = cursor.generator.contiguous();
    json["generator"] =
        to_hex(generator.const_data_ptr(), generator.nbytes());
  }
  return json;
}

bool member_bool(
    const Json& json,
    const std::string& key,
    const std::string& what) {
  const Json& value = member(json, key, what);
  TORCH_CHECK(value.is_boolean(), what, ": '", key, "' is no truth value");
  return value.get<bool>();
}

LoaderCursor read_cursor(const Json& json, const std::string& what) {
  LoaderCursor cursor;
  cursor.sampler = member_text(json, "sampler", what);
  cursor.size = member_int(json, "size", what, /*lowest=*/-1);
  cursor.batch_size = member_int(json, "batch_size", what, /*lowest=*/0);
  cursor.drop_last = member_bool(json, "drop_last", what);
  cursor.sampler_state =
      from_hex(member_text(json, "sampler_state", what), what);
  cursor.in_pass = member_bool(json, "in_pass", what);
  if (cursor.in_pass) {
    cursor.sharing = member_text(json, "sharing", what);
    cursor.world = member_int(json, "world_size", what, /*lowest=*/1);
    cursor.batches = member_int(json, "batches", what, /*lowest=*/0);
    const auto fingerprint =
        from_hex(member_text(json, "fingerprint", what), what);
    TORCH_CHECK(
        fingerprint.size() == sizeof cursor.fingerprint,
        what,
        ": the fingerprint has ",
        fingerprint.size(),
        " bytes");
    std::memcpy(
        &cursor.fingerprint, fingerprint.data(), sizeof cursor.fingerprint);
    const auto bytes = from_hex(member_text(json, "generator", what), what);
    const auto current = accel::detail::generator_state();
    TORCH_CHECK(
        bytes.size() == current.nbytes(),
        what,
        ": the generator's state has ",
        bytes.size(),
        " bytes, but this LibTorch's has ",
        current.nbytes());
    cursor.generator = at::empty_like(current);
    std::memcpy(
        cursor.generator.mutable_data_ptr(), bytes.data(), bytes.size());
    // On a generator that does not matter: when the pass begins is too late.
    try {
      at::detail::getDefaultCPUGenerator().clone().set_state(cursor.generator);
    } catch (const c10::Error&) {
      TORCH_CHECK(
          false, what, ": the generator's state is none that LibTorch takes");
    }
  }
  return cursor;
}

void check_can_go_on(const LoaderCursor& saved, const LoaderCursor& current) {
  TORCH_CHECK(
      saved.sharing == current.sharing,
      "accel: the checkpoint was saved in the middle of a pass over a data set "
      "that was shared between the processes by ",
      saved.sharing,
      "; with ",
      current.sharing,
      " its batches are other ones. Resume as it was saved, or from a "
      "checkpoint between two passes.");
  TORCH_CHECK(
      saved.world == current.world || saved.sharing != "batch_per_process" ||
          saved.batches == 0,
      "accel: the checkpoint was saved in the middle of a pass by ",
      saved.world,
      " processes with a batch each; ",
      current.world,
      " processes cannot go on behind the same samples. Resume with ",
      saved.world,
      " processes, or from a checkpoint between two passes. "
      "(match_single_device(true) and split_batches(true) can go on with any "
      "number.)");
}

} // namespace

std::string save_loaders() {
  Json json = Json::array();
  int64_t place = 0;
  for (auto* loader : accel::detail::living_loaders()) {
    if (loader->cursor().left) {
      loader->leave();
    }
    const auto cursor = loader->cursor();
    check_can_be_saved(cursor);
    Json entry = cursor_to_json(cursor);
    entry["number"] = loader->number();
    entry["place"] = place++;
    json.push_back(std::move(entry));
  }
  return json.dump();
}

bool in_loop_body() {
  const auto& loaders = accel::detail::living_loaders();
  return std::any_of(loaders.begin(), loaders.end(), [](const auto* loader) {
    const auto cursor = loader->cursor();
    return cursor.in_pass && cursor.in_body;
  });
}

std::function<LateLoaders()> prepare_loaders(const std::string& text) {
  const std::string what = "The loaders' state";
  // Those that live, by their places among these; for checkpoints of earlier releases,
  // which have no places, by their numbers.
  std::map<int64_t, ResumableLoader*> places, numbers;
  for (auto* loader : accel::detail::living_loaders()) {
    const auto cursor = loader->cursor();
    TORCH_CHECK(
        !cursor.in_body,
        "accel: load_state was called inside of the loop over a data loader (",
        describe(cursor),
        "), which cannot go on elsewhere. Load before the loop begins.");
    places.emplace(static_cast<int64_t>(places.size()), loader);
    numbers.emplace(loader->number(), loader);
  }
  std::vector<std::pair<ResumableLoader*, LoaderCursor>> changes;
  LateLoaders late;
  const Json json = text.empty() ? Json::array() : parse_json(text, what);
  TORCH_CHECK(json.is_array(), what, " is not a list");
  for (const Json& entry : json) {
    const int64_t number = member_int(entry, "number", what, /*lowest=*/0);
    LoaderCursor saved = read_cursor(entry, what);
    const bool has_place = entry.contains("place");
    const int64_t place =
        has_place ? member_int(entry, "place", what, /*lowest=*/0) : number;
    const auto& loaders = has_place ? places : numbers;
    const auto found = loaders.find(place);
    const bool needed = saved.in_pass || !saved.sampler_state.empty();
    if (found == loaders.end()) {
      TORCH_CHECK(
          !saved.in_pass,
          "accel: the checkpoint was saved in the middle of a pass over data "
          "loader ",
          place,
          " (",
          describe(saved),
          "), which does not exist: there are ",
          loaders.size(),
          ". Before load_state make all data loaders that existed when it was "
          "saved and whose passes can be interrupted, in the same order.");
      late.emplace(number, std::move(saved));
      continue;
    }
    const LoaderCursor current = found->second->cursor();
    TORCH_CHECK(
        !needed || saved.same_loader(current),
        "accel: data loader ",
        place,
        " was another one when the checkpoint was saved (",
        describe(saved),
        ") than now (",
        describe(current),
        "). Make the same data loaders in the same order before load_state.");
    if (!needed) {
      continue;
    }
    if (saved.in_pass) {
      check_can_go_on(saved, current);
    }
    changes.emplace_back(found->second, std::move(saved));
  }
  return [changes, late] {
    for (const auto& [loader, cursor] : changes) {
      loader->resume(cursor);
    }
    return late;
  };
}

} // namespace accel::checkpoint
