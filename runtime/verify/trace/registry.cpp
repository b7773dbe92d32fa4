#include "registry.h"

#include <algorithm>
#include <cctype>

namespace accel::verify {
namespace {

/// What may be kept of what comes after the first backward.
constexpr size_t kMostLater = 4096;
constexpr size_t kMostBytes = size_t{64} << 20;

/// "Conv2d" of "torch::nn::ConvNdImpl<2ul, torch::nn::Conv2dImpl>": while a
/// base class is being constructed, the class that the user wrote is its last
/// argument.
std::string short_type(const std::string& type) {
  const std::string suffix = "Impl";
  std::string word;
  std::string name;
  std::string last_impl;
  for (size_t i = 0; i <= type.size(); ++i) {
    const char c = i < type.size() ? type[i] : '\0';
    if (std::isalnum(static_cast<unsigned char>(c)) || c == '_') {
      word += c;
      continue;
    }
    if (c != ':' && name.empty()) {
      name = word;
    }
    if (word.size() > suffix.size() &&
        word.compare(word.size() - suffix.size(), suffix.size(), suffix) == 0) {
      last_impl = word.substr(0, word.size() - suffix.size());
    }
    word.clear();
  }
  return !last_impl.empty() ? last_impl : !name.empty() ? name : "module";
}

} // namespace

std::string Registry::label(
    const void* module, const std::string& type, const std::string& name) {
  const std::string short_name = short_type(type);
  auto& known = modules_[{module, short_name}];
  // A name that comes again belongs to another module at the same address.
  if (known.label.empty() ||
      std::find(known.names.begin(), known.names.end(), name) !=
          known.names.end()) {
    known.label = short_name + "#" +
        std::to_string(++modules_of_type_[short_name]);
    known.names.clear();
  }
  known.names.push_back(name);
  return known.label + "." + name;
}

void Registry::registered(
    const void* module,
    const std::string& type,
    const std::string& name,
    const at::Tensor& tensor,
    TensorKind kind) {
  const std::string full_name = label(module, type, name);
  if (!tensor.defined()) {
    return; // a bias that is switched off
  }
  const c10::weak_intrusive_ptr<at::TensorImpl> weak(
      tensor.getIntrusivePtr());
  registered_.insert_or_assign(
      tensor.unsafeGetTensorImpl(), Registered{full_name, kind, weak});
  pending_.push_back(weak);
}

Registry::Entry& Registry::add(
    const at::Tensor& tensor, TensorKind kind, std::string name) {
  const auto* key = tensor.unsafeGetTensorImpl();
  return entries_
      .insert_or_assign(
          key,
          Entry{
              next_id_++,
              kind,
              std::move(name),
              at::Tensor(),
              c10::weak_intrusive_ptr<at::TensorImpl>(
                  tensor.getIntrusivePtr())})
      .first->second;
}

Registry::Entry& Registry::parameter(const at::Tensor& leaf, bool& is_new) {
  const auto* key = leaf.unsafeGetTensorImpl();
  const auto found = entries_.find(key);
  // The weak reference keeps the address taken, so that the entry is of this
  // very tensor.
  is_new = found == entries_.end();
  if (!is_new) {
    auto& entry = found->second;
    if (!entry.tensor.defined() && !entry.name.empty()) {
      --left_out_;
    }
    entry.tensor = leaf;
    return entry;
  }
  const auto named = registered_.find(key);
  if (named == registered_.end()) {
    return add(leaf, TensorKind::kParameter, "");
  }
  auto& entry = add(leaf, named->second.kind, named->second.name);
  keep(entry, leaf);
  return entry;
}

void Registry::keep(Entry& entry, const at::Tensor& tensor) {
  if (!first_) {
    if (later_ == kMostLater || later_bytes_ + tensor.nbytes() > kMostBytes) {
      ++left_out_;
      return;
    }
    ++later_;
    later_bytes_ += tensor.nbytes();
  }
  entry.tensor = tensor;
}

std::vector<std::pair<Registry::Entry*, at::Tensor>>
Registry::new_registered() {
  std::vector<std::pair<Entry*, at::Tensor>> result;
  first_ = next_id_ == 0;
  for (const auto& weak : pending_) {
    auto alive = weak.lock();
    if (!alive) {
      continue;
    }
    const auto* key = alive.get();
    if (entries_.count(key) != 0) {
      continue;
    }
    const at::Tensor tensor(std::move(alive));
    const auto& registered = registered_.at(key);
    auto& entry = add(tensor, registered.kind, registered.name);
    keep(entry, tensor);
    result.emplace_back(&entry, tensor);
  }
  pending_.clear();
  return result;
}

void Registry::prune() {
  for (auto entry = entries_.begin(); entry != entries_.end();) {
    const bool gone =
        !entry->second.tensor.defined() && entry->second.weak.expired();
    entry = gone ? entries_.erase(entry) : std::next(entry);
  }
  for (auto entry = registered_.begin(); entry != registered_.end();) {
    entry = entry->second.weak.expired() ? registered_.erase(entry)
                                         : std::next(entry);
  }
}

std::vector<Registry::Entry*> Registry::kept() {
  std::vector<Entry*> result;
  for (auto& [key, entry] : entries_) {
    if (!entry.tensor.defined()) {
      if (auto alive = entry.weak.lock()) {
        entry.tensor = at::Tensor(std::move(alive));
      }
    }
    if (entry.tensor.defined()) {
      result.push_back(&entry);
    }
  }
  std::sort(result.begin(), result.end(), [](Entry* a, Entry* b) {
    return a->id < b->id;
  });
  return result;
}

} // namespace accel::verify
