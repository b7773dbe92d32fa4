#include <accel/distributed/placement.h>

#include <ostream>

namespace accel::distributed {

std::string Placement::str() const {
  switch (kind_) {
    case Kind::kReplicate:
      return "R";
    case Kind::kShard:
      return "S(" + std::to_string(dim_) + ")" + (cut_ ? "*" : "") +
          (in_blocks() ? std::to_string(cut_->blocks) : "");
    case Kind::kPartial:
      switch (op_) {
        case ReduceOp::kSum:
          return "P";
        case ReduceOp::kMax:
          return "P(max)";
        case ReduceOp::kMin:
          return "P(min)";
        case ReduceOp::kProduct:
          return "P(product)";
      }
  }
  return "?";
}

std::ostream& operator<<(std::ostream& out, const Placement& placement) {
  return out << placement.str();
}

} // namespace accel::distributed
