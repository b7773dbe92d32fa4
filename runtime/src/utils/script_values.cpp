#include <accel/script_values.h>

#include <ATen/core/ivalue_inl.h>
#include <ATen/core/jit_type.h>

#include <vector>

namespace accel::detail {

c10::IValue map_script_tensors(
    const c10::IValue& value,
    const std::function<torch::Tensor(const torch::Tensor&)>& f) {
  const auto mapped = [&](const c10::IValue& element) {
    return map_script_tensors(element, f);
  };
  if (value.isTensor()) {
    return f(value.toTensor());
  }
  if (value.isList()) {
    const auto list = value.toList();
    c10::impl::GenericList result(list.elementType());
    for (size_t i = 0; i < list.size(); ++i) {
      result.push_back(mapped(list.get(i)));
    }
    return result;
  }
  if (value.isGenericDict()) {
    const auto dict = value.toGenericDict();
    c10::impl::GenericDict result(dict.keyType(), dict.valueType());
    for (const auto& item : dict) {
      result.insert(item.key(), mapped(item.value()));
    }
    return result;
  }
  if (value.isTuple()) {
    const auto tuple = value.toTuple();
    std::vector<c10::IValue> elements;
    for (const auto& element : tuple->elements()) {
      elements.push_back(mapped(element));
    }
    const auto type = tuple->type();
    return type->name().has_value()
        ? c10::ivalue::Tuple::createNamed(std::move(elements), type)
        : c10::ivalue::Tuple::create(std::move(elements));
  }
  return value;
}

} // namespace accel::detail
