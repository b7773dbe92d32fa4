"""Losses: from what the model gives and the targets to a scalar."""

F = "torch::nn::functional"


def class_losses(outputs, real):
    weights = ", ".join(f"{0.5 + 0.25 * i:.2f}" for i in range(outputs))
    return [
        ("cross_entropy", [], f"{F}::cross_entropy({{o}}, {{y}})"),
        ("nll_of_log_softmax", [], "torch::nll_loss(torch::log_softmax({o}, 1), {y})"),
        ("functional_nll", [], f"{F}::nll_loss({F}::log_softmax({{o}}, {F}::LogSoftmaxFuncOptions(1)), {{y}})"),
        ("criterion", ["torch::nn::CrossEntropyLoss criterion;"], "criterion({o}, {y})"),
        ("criterion_weighted", [f"torch::nn::CrossEntropyLoss criterion(torch::nn::CrossEntropyLossOptions().weight(torch::tensor({{{weights}}}, torch::kDouble)));"],
         "criterion->forward({o}, {y})"),
        ("label_smoothing", [], f"{F}::cross_entropy({{o}}, {{y}}, {F}::CrossEntropyFuncOptions().label_smoothing(0.1))"),
        ("sum_over_rows", [], f"{F}::cross_entropy({{o}}, {{y}}, {F}::CrossEntropyFuncOptions().reduction(torch::kSum)) / static_cast<double>({{y}}.size(0))"),
        ("none_then_mean", [], f"{F}::cross_entropy({{o}}, {{y}}, {F}::CrossEntropyFuncOptions().reduction(torch::kNone)).mean()"),
        ("ignore_index", [], f"{F}::cross_entropy({{o}}, {{y}}, {F}::CrossEntropyFuncOptions().ignore_index({outputs - 1})) + 0.01 * {{o}}.pow(2).mean()"),
        ("by_hand", [], "-torch::log_softmax({o}, 1).gather(1, {y}.unsqueeze(1)).mean()"),
        ("one_hot", [], f"torch::mse_loss(torch::softmax({{o}}, 1), torch::one_hot({{y}}, {outputs}).to(torch::kDouble))"),
        ("binary", [], f"{F}::binary_cross_entropy_with_logits({{o}}, torch::one_hot({{y}}, {outputs}).to(torch::kDouble))"),
        ("margin", [], f"{F}::multi_margin_loss({{o}}, {{y}})"),
        ("indexed", [], "-torch::log_softmax({o}, 1).index({torch::arange({y}.size(0)), {y}}).mean()"),
        ("focal", [], "-((1 - torch::softmax({o}, 1).gather(1, {y}.unsqueeze(1))).pow(2) * "
                      "torch::log_softmax({o}, 1).gather(1, {y}.unsqueeze(1))).mean()"),
    ]


def value_losses(outputs, real):
    return [
        ("mse", [], "torch::mse_loss({o}, {y})"),
        ("functional_mse", [], f"{F}::mse_loss({{o}}, {{y}})"),
        ("criterion", ["torch::nn::MSELoss criterion;"], "criterion({o}, {y})"),
        ("criterion_sum", ["torch::nn::MSELoss criterion(torch::nn::MSELossOptions().reduction(torch::kSum));"],
         "criterion->forward({o}, {y}) / static_cast<double>({y}.size(0))"),
        ("by_hand", [], "({o} - {y}).pow(2).mean()"),
        ("sum_by_hand", [], "torch::sum(torch::pow({o} - {y}, 2)) / {y}.size(0)"),
        ("l1", [], "torch::l1_loss({o}, {y})"),
        ("smooth_l1", [], f"{F}::smooth_l1_loss({{o}}, {{y}})"),
        ("huber", [], "torch::huber_loss({o}, {y})"),
        ("root", [], "torch::sqrt(torch::mse_loss({o}, {y}) + 1e-8)"),
        ("log_cosh", [], "torch::log(torch::cosh({o} - {y})).mean()"),
        ("norm", [], "torch::norm({o} - {y})"),
        ("per_row", [], "({o} - {y}).abs().sum(1).mean()"),
        ("binary", [], f"{F}::binary_cross_entropy(torch::sigmoid({{o}}), torch::sigmoid({{y}}))"),
        ("divergence", [], f"{F}::kl_div(torch::log_softmax({{o}}, 1), torch::softmax({{y}}, 1), {F}::KLDivFuncOptions().reduction(torch::kBatchMean)) + torch::mse_loss({{o}}, {{y}})"),
        ("cosine", [], "(1 - torch::cosine_similarity({o}, {y}, 1)).mean() + torch::mse_loss({o}, {y})"),
        ("mean_free", [], "torch::mse_loss({o} - {o}.mean(0), {y} - {y}.mean(0)) + torch::mse_loss({o}, {y})"),
    ]


class Loss:
    """A loss: what is declared in front of the training, and its expression."""

    def __init__(self, choices, task, real):
        if task.kind in ("classes", "tokens"):
            options = class_losses(task.outputs, real)
        else:
            options = value_losses(task.outputs, real)
        names = [name for name, _, _ in options]
        chosen = choices.pick("loss", names)
        _, self.declared, self.text = options[names.index(chosen)]
        self.task = task
        # What is added to it.
        self.extra = choices.pick("penalty", ["", "weights", "activity", "spread", "entropy", "nearby"], [10, 2, 1, 1, 1, 1])

    def expression(self, output, target):
        return self.text.replace("{o}", output).replace("{y}", target)

    def lines(self, output, target, model, reach):
        """Statements that declare `loss`."""
        kind = "auto" if not self.extra else "torch::Tensor"
        if self.task.kind == "tokens":
            words = self.task.outputs
            output, target = f"{output}.reshape({{-1, {words}}})", f"{target}.reshape({{-1}})"
            if self.text.count("{o}") > 1 or self.text.count("{y}") > 1:
                return [f"auto scores = {output};", f"auto wanted = {target};",
                        f"{kind} loss = {self.expression('scores', 'wanted')};"] + self.extras("scores", model, reach)
        return [f"{kind} loss = {self.expression(output, target)};"] + self.extras(output, model, reach)

    def extras(self, output, model, reach):
        if self.extra == "weights":
            return [f"auto penalty = torch::zeros({{}}, torch::kDouble);",
                    f"for (const auto& p : {reach.dot(model)}parameters()) {{", "penalty = penalty + p.pow(2).sum();", "}",
                    "loss = loss + 1e-3 * penalty;"]
        if self.extra == "activity":
            return [f"loss = loss + 0.01 * {output}.abs().mean();"]
        if self.extra == "spread":
            return [f"loss = loss + 0.05 * ({output} - {output}.mean(0, true)).pow(2).mean();"]
        if self.extra == "entropy":
            return [f"auto probs = torch::softmax({output}, -1);", "loss = loss + 0.01 * (probs * torch::log(probs + 1e-9)).sum(-1).mean();"]
        if self.extra == "nearby":
            return [f"auto flat = {output}.reshape({{{output}.size(0), -1}});",
                    "loss = loss + 0.01 * torch::exp(-torch::matmul(flat, flat.t())).clamp_max(5.0).mean();"]
        return []
