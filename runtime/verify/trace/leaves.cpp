#include "leaves.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>

namespace accel::verify {

using torch::autograd::AccumulateGrad;
using torch::autograd::Node;

const std::vector<at::Tensor>& LeafFinder::find(
    const std::vector<at::Tensor>& roots) {
  leaves_.clear();
  stack_.clear();
  std::fill(visited_.begin(), visited_.end(), nullptr);
  count_ = 0;
  for (const auto& root : roots) {
    if (root.defined()) {
      const auto edge = torch::autograd::impl::gradient_edge(root);
      if (auto* node = edge.function.get();
          node != nullptr && visit(node)) {
        stack_.push_back(node);
      }
    }
  }
  while (!stack_.empty()) {
    Node* node = stack_.back();
    stack_.pop_back();
    const auto& edges = node->next_edges();
    if (edges.empty()) {
      // Nodes without a successor are leaves, or constants of the graph.
      if (auto* leaf = dynamic_cast<AccumulateGrad*>(node)) {
        leaves_.push_back(leaf->variable);
      }
      continue;
    }
    for (auto edge = edges.rbegin(); edge != edges.rend(); ++edge) {
      if (edge->is_valid() && visit(edge->function.get())) {
        stack_.push_back(edge->function.get());
      }
    }
  }
  return leaves_;
}

bool LeafFinder::visit(Node* node) {
  if (2 * (count_ + 1) > visited_.size()) {
    std::vector<Node*> old(std::max<size_t>(1024, 2 * visited_.size()));
    old.swap(visited_);
    count_ = 0;
    for (Node* earlier : old) {
      if (earlier != nullptr) {
        visit(earlier);
      }
    }
  }
  const size_t mask = visited_.size() - 1;
  size_t slot =
      reinterpret_cast<uintptr_t>(node) * 0x9e3779b97f4a7c15ull >> 20;
  for (slot &= mask; visited_[slot] != nullptr; slot = (slot + 1) & mask) {
    if (visited_[slot] == node) {
      return false;
    }
  }
  visited_[slot] = node;
  ++count_;
  return true;
}

} // namespace accel::verify
