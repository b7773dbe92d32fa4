#include "sample_table.h"

#include <ATen/ATen.h>
#include <ATen/core/jit_type.h>
#include <ATen/CPUGeneratorImpl.h>

#include <fnmatch.h>

#include <cctype>
#include <fstream>
#include <limits>
#include <map>
#include <optional>

namespace accel::distributed::test {
namespace {

constexpr int64_t kSizes[] = {8, 7, 2};

bool has_rows(const std::string& text) {
  // Names of operators stand before the colon, strings are lower case.
  return text.find('N', text.find(':')) != std::string::npos;
}

/// Positive definite: A A' + 3.
at::Tensor definite(const at::Tensor& a) {
  return a.matmul(a.mT()) + 3 * at::eye(a.size(-1), at::kDouble);
}

/// Tensors of the kinds that the table names.
class Maker {
 public:
  explicit Maker(uint64_t seed)
      : generator_(at::make_generator<at::CPUGeneratorImpl>(seed)) {}

  at::Tensor make(char kind, int64_t bound, c10::IntArrayRef sizes) {
    switch (kind) {
      case 'f':
        return normal(sizes);
      case 'g':
        return normal(sizes).to(at::kFloat);
      case 'h':
        return normal(sizes).to(at::kHalf);
      case 'v':
        return normal(sizes).to(at::kBFloat16);
      case 'p':
        return uniform(sizes) + 0.5;
      case 'e':
        return (uniform(sizes) + 0.5).to(at::kFloat);
      case 'u':
        return uniform(sizes) * 0.9 + 0.05;
      case 'k':
        return integers(2, 7, sizes).to(at::kDouble);
      case 's':
        return uniform(sizes).add_(0.1).cumsum(-1) - 1;
      case 'c':
        return at::complex(normal(sizes), normal(sizes));
      case 'b':
        return uniform(sizes) < 0.5;
      case 'i':
        return integers(0, bound, sizes);
      case 'w':
        return integers(1, bound + 1, sizes);
      case 'y':
        return integers(-9, 10, sizes).to(at::kChar);
      case 'r':
        return uniform(sizes).argsort(int64_t{-1}, false);
      case 'a':
        return at::arange(sizes.back()).expand(sizes).contiguous();
      case 'm':
        return at::arange(0, bound * sizes.back(), bound).expand(sizes).contiguous();
      case 'o':
        return at::arange(1, sizes.back() + 1, at::kInt).expand(sizes).contiguous();
      case 'd':
        return definite(normal(sizes));
      case 'q':
        return normal(sizes) + 3 * at::eye(sizes.back(), at::kDouble);
      case 'l':
        return (normal(sizes) + 3 * at::eye(sizes.back(), at::kDouble)).tril();
      default:
        TORCH_CHECK(false, "no kind of tensors: ", kind);
    }
  }

 private:
  at::Tensor normal(c10::IntArrayRef sizes) {
    return at::empty(sizes, at::kDouble).normal_(0, 1, generator_);
  }
  at::Tensor uniform(c10::IntArrayRef sizes) {
    return at::empty(sizes, at::kDouble).uniform_(0, 1, generator_);
  }
  at::Tensor integers(int64_t low, int64_t high, c10::IntArrayRef sizes) {
    return at::empty(sizes, at::kLong).random_(low, high, generator_);
  }

  at::Generator generator_;
};

/// Reads the arguments of one line, as the schema's types want them.
class Parser {
 public:
  Parser(std::string text, int64_t n, uint64_t seed)
      : text_(std::move(text)), n_(n), maker_(seed) {}

  torch::jit::Stack arguments(const c10::FunctionSchema& schema) {
    const auto& all = schema.arguments();
    std::vector<std::optional<c10::IValue>> given(all.size());
    for (size_t position = 0; !at_end(); ++position) {
      size_t i = position;
      if (const auto name = keyword(); !name.empty()) {
        const auto found = schema.argumentIndexWithName(name);
        TORCH_CHECK(found.has_value(), schema.name(), " has no argument ", name);
        i = *found;
      }
      TORCH_CHECK(i < all.size(), "too many arguments for ", schema.name());
      given[i] = value(all[i].type());
      TORCH_CHECK(at_end() || take(','), "a comma is missing before: ", rest());
    }
    torch::jit::Stack stack;
    for (size_t i = 0; i < all.size(); ++i) {
      if (given[i]) {
        stack.push_back(std::move(*given[i]));
      } else if (all[i].default_value()) {
        stack.push_back(*all[i].default_value());
      } else {
        TORCH_CHECK(
            all[i].type()->kind() == c10::TypeKind::OptionalType,
            schema.name(), " lacks its argument ", all[i].name());
        stack.emplace_back();
      }
    }
    return stack;
  }

 private:
  void skip() {
    while (at_ < text_.size() && text_[at_] == ' ') {
      ++at_;
    }
  }
  bool at_end() {
    skip();
    return at_ == text_.size();
  }
  std::string rest() const {
    return text_.substr(at_);
  }
  bool take(char c) {
    skip();
    if (at_ < text_.size() && text_[at_] == c) {
      ++at_;
      return true;
    }
    return false;
  }
  void want(char c) {
    TORCH_CHECK(take(c), "'", c, "' is missing before: ", rest());
  }
  std::string word(const char* more) {
    skip();
    const size_t begin = at_;
    while (at_ < text_.size() &&
           (std::isalnum(text_[at_]) != 0 ||
            std::string(more).find(text_[at_]) != std::string::npos)) {
      ++at_;
    }
    return text_.substr(begin, at_ - begin);
  }
  /// "name" of "name=", or nothing.
  std::string keyword() {
    const size_t begin = at_;
    auto name = word("_");
    if (!name.empty() && take('=')) {
      return name;
    }
    at_ = begin;
    return "";
  }

  /// A whole number, N, 2N, N+1 or N-1.
  int64_t integer(const std::string& text) const {
    const auto rows = text.find('N');
    if (rows == std::string::npos) {
      size_t used = 0;
      const int64_t number = std::stoll(text, &used);
      TORCH_CHECK(used == text.size(), "no whole number: ", text);
      return number;
    }
    const int64_t factor = rows == 0 ? 1 : std::stoll(text.substr(0, rows));
    const auto behind = text.substr(rows + 1);
    return factor * n_ + (behind.empty() ? 0 : std::stoll(behind));
  }

  at::Tensor tensor() {
    skip();
    const char kind = text_[at_++];
    const auto digits = word("");
    const int64_t bound = digits.empty() ? 5 : std::stoll(digits);
    want('[');
    std::vector<int64_t> sizes;
    while (!take(']')) {
      sizes.push_back(integer(word("+-")));
      take(',');
    }
    auto made = maker_.make(kind, bound, sizes);
    const auto order = word("");
    if (order == "t") {
      made = made.mT().contiguous().mT();
    } else if (order == "cl") {
      made = made.contiguous(at::MemoryFormat::ChannelsLast);
    } else {
      TORCH_CHECK(order.empty(), "no order of memory: ", order);
    }
    return made;
  }

  c10::IValue value(c10::TypePtr type) {
    bool optional = false;
    if (type->kind() == c10::TypeKind::OptionalType) {
      type = type->expectRef<c10::OptionalType>().getElementType();
      optional = true;
    }
    const size_t begin = at_;
    if (word("") == "none") {
      TORCH_CHECK(
          optional || type->kind() == c10::TypeKind::TensorType,
          "none for an argument that must be there");
      return optional ? c10::IValue() : c10::IValue(at::Tensor());
    }
    at_ = begin;
    switch (type->kind()) {
      case c10::TypeKind::TensorType:
        return tensor();
      case c10::TypeKind::ListType:
        return list(type->expectRef<c10::ListType>().getElementType());
      case c10::TypeKind::FloatType:
        return number();
      case c10::TypeKind::BoolType:
        return boolean();
      case c10::TypeKind::StringType: {
        want('\'');
        const auto end = text_.find('\'', at_);
        TORCH_CHECK(end != std::string::npos, "a string without its end");
        auto text = text_.substr(at_, end - at_);
        at_ = end + 1;
        return text;
      }
      case c10::TypeKind::NumberType:
        return scalar();
      default:
        return integer_or_name();
    }
  }

  c10::IValue list(const c10::TypePtr& element) {
    if (element->kind() == c10::TypeKind::TensorType) {
      std::vector<at::Tensor> tensors;
      want('{');
      while (!take('}')) {
        tensors.push_back(tensor());
        take(',');
      }
      return tensors;
    }
    if (element->kind() == c10::TypeKind::OptionalType) {
      c10::List<std::optional<at::Tensor>> tensors;
      want('{');
      while (!take('}')) {
        auto one = value(element);
        tensors.push_back(
            one.isNone() ? std::nullopt : std::optional<at::Tensor>(one.toTensor()));
        take(',');
      }
      return tensors;
    }
    want('(');
    c10::List<int64_t> integers;
    c10::List<double> numbers;
    c10::List<bool> booleans;
    c10::impl::GenericList scalars(c10::NumberType::get());
    while (!take(')')) {
      switch (element->kind()) {
        case c10::TypeKind::FloatType:
          numbers.push_back(number());
          break;
        case c10::TypeKind::BoolType:
          booleans.push_back(boolean());
          break;
        case c10::TypeKind::NumberType:
          scalars.push_back(scalar());
          break;
        default:
          integers.push_back(integer(word("+-")));
      }
      take(',');
    }
    switch (element->kind()) {
      case c10::TypeKind::FloatType:
        return numbers;
      case c10::TypeKind::BoolType:
        return booleans;
      case c10::TypeKind::NumberType:
        return scalars;
      default:
        return integers;
    }
  }

  double number() {
    const auto text = word(".+-");
    const double infinity = std::numeric_limits<double>::infinity();
    return text == "inf" ? infinity : text == "-inf" ? -infinity : std::stod(text);
  }

  c10::IValue scalar() {
    const size_t begin = at_;
    const auto text = word(".+-");
    if (text.find_first_not_of("0123456789-") == std::string::npos) {
      return static_cast<int64_t>(std::stoll(text));
    }
    at_ = begin;
    return number();
  }

  bool boolean() {
    const auto text = word("");
    TORCH_CHECK(text == "true" || text == "false", "no truth value: ", text);
    return text == "true";
  }

  /// dtypes and memory formats are integers to the dispatcher.
  c10::IValue integer_or_name() {
    static const std::map<std::string, int64_t> names{
        {"float64", static_cast<int64_t>(at::kDouble)},
        {"float32", static_cast<int64_t>(at::kFloat)},
        {"float16", static_cast<int64_t>(at::kHalf)},
        {"bfloat16", static_cast<int64_t>(at::kBFloat16)},
        {"int64", static_cast<int64_t>(at::kLong)},
        {"bool", static_cast<int64_t>(at::kBool)},
        {"contiguous_format", static_cast<int64_t>(at::MemoryFormat::Contiguous)},
        {"channels_last", static_cast<int64_t>(at::MemoryFormat::ChannelsLast)}};
    const auto text = word("+-_");
    const auto name = names.find(text);
    return name != names.end() ? name->second : integer(text);
  }

  std::string text_;
  size_t at_ = 0;
  int64_t n_;
  Maker maker_;
};

/// The operators that a name of the table stands for.
std::vector<c10::OperatorHandle> operators_of(const std::string& name) {
  const auto dot = name.find('.');
  const auto base = "aten::" + name.substr(0, dot);
  const auto overload = dot == std::string::npos ? "" : name.substr(dot + 1);
  auto& dispatcher = c10::Dispatcher::singleton();
  std::vector<c10::OperatorHandle> found;
  if (name.find('*') == std::string::npos) {
    if (const auto op = dispatcher.findSchema({base, overload})) {
      found.push_back(*op);
    }
    return found;
  }
  for (const auto& other : dispatcher.getAllOpNames()) {
    const auto op = dispatcher.findSchema(other);
    if (op && other.overload_name == overload &&
        ::fnmatch(base.c_str(), other.name.c_str(), 0) == 0) {
      found.push_back(*op);
    }
  }
  return found;
}

std::vector<std::string> names_of(const std::string& text) {
  std::vector<std::string> names;
  size_t begin = 0;
  while (begin < text.size()) {
    const auto comma = std::min(text.find(", ", begin), text.size());
    names.push_back(text.substr(begin, comma - begin));
    begin = comma + 2;
  }
  return names;
}

} // namespace

std::vector<TableCall> read_sample_table(
    const std::string& path,
    std::vector<std::string>& unknown) {
  std::ifstream file(path);
  TORCH_CHECK(file.good(), path, " cannot be read.");
  std::vector<TableCall> calls;
  std::string text;
  for (int64_t line = 1; std::getline(file, text); ++line) {
    if (text.empty() || text[0] == '#') {
      continue;
    }
    const auto colon = text.find(": ");
    TORCH_CHECK(
        colon != std::string::npos, path, ":", line,
        " has no ': ' behind the operators.");
    for (const auto& name : names_of(text.substr(0, colon))) {
      const auto operators = operators_of(name);
      if (operators.empty()) {
        unknown.push_back(c10::str(path, ":", line, ": ", name));
      }
      for (const auto& op : operators) {
        for (const int64_t n : kSizes) {
          const bool rows = has_rows(text);
          if (!rows && n != kSizes[0]) {
            break;
          }
          try {
            Parser parser(text.substr(colon + 2), n, line * 100 + n);
            calls.push_back(
                {op, parser.arguments(op.schema()), line, rows ? n : 0});
          } catch (const c10::Error& error) {
            unknown.push_back(c10::str(
                path, ":", line, ": ", name, ": ", error.what_without_backtrace()));
          } catch (const std::exception& error) {
            unknown.push_back(
                c10::str(path, ":", line, ": ", name, ": ", error.what()));
          }
        }
      }
    }
  }
  return calls;
}

} // namespace accel::distributed::test
