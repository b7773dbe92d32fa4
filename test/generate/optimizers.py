"""Optimizers and schedules."""

from text import Var

KINDS = [
    ("SGD", "0.05", ["torch::optim::SGDOptions(0.05)", "torch::optim::SGDOptions(0.05).momentum(0.9)",
                     "torch::optim::SGDOptions(0.02).momentum(0.9).nesterov(true).weight_decay(1e-4)"]),
    ("Adam", "1e-2", ["torch::optim::AdamOptions(1e-2)", "torch::optim::AdamOptions(5e-3).betas({0.8, 0.95}).weight_decay(1e-3)",
                      "torch::optim::AdamOptions(5e-3).amsgrad(true)"]),
    ("AdamW", "5e-3", ["torch::optim::AdamWOptions(5e-3)", "torch::optim::AdamWOptions(1e-2).weight_decay(0.05)"]),
    ("RMSprop", "2e-3", ["torch::optim::RMSpropOptions(2e-3)", "torch::optim::RMSpropOptions(2e-3).momentum(0.5).alpha(0.9)"]),
    ("Adagrad", "2e-2", ["torch::optim::AdagradOptions(2e-2)"]),
]


class Optimizer:
    def __init__(self, choices, model, only_sgd=False):
        """`model` is the Var of what is trained. The others divide by the size of a gradient,
        and so make steps of one that is only rounding."""
        kind, rate, options = KINDS[0] if only_sgd else choices.pick("optimizer", KINDS, [4, 5, 2, 1, 1])
        self.kind = kind
        use = "->" if model.pointer else "."
        self.model_use = use
        text = choices.pick("optimizer_options", [None] + options)
        options_text = text or rate
        parameters = f"{model.name}{use}parameters()"
        groups = choices.flag("groups", 0.1)
        before = []
        if groups:
            before = ["std::vector<torch::Tensor> weights, others;", f"for (const auto& p : {parameters}) {{",
                      "(p.dim() > 1 ? weights : others).push_back(p);", "}"]
            first = f"std::make_unique<torch::optim::{kind}Options>({options_text if text else f'torch::optim::{kind}Options({rate})'})"
            second = f"std::make_unique<torch::optim::{kind}Options>({float(rate) / 2:g})"
            args = (f"std::vector<torch::optim::OptimizerParamGroup>{{\ntorch::optim::OptimizerParamGroup(weights, {first}),\n"
                    f"torch::optim::OptimizerParamGroup(others, {second})}}, torch::optim::{kind}Options({rate})")
        else:
            args = f"{parameters}, {options_text}"
        name = choices.pick("optimizer_name", ["optimizer", "opt", "optim"])
        type_ = f"torch::optim::{kind}"
        form = choices.pick("optimizer_form", ["direct", "auto", "unique", "shared", "new", "by_name"], [6, 3, 1, 1, 1, 1])
        if form == "by_name" and groups:
            form = "unique"
        base = choices.flag("optimizer_base", 0.5)
        parameter_type = "torch::optim::Optimizer" if base else type_
        pointer = form in ("unique", "shared", "new", "by_name")
        if form == "direct":
            local = f"{type_} {name}({args});"
        elif form == "auto":
            local = f"auto {name} = {type_}({args});"
        elif form == "new":
            local = choices.pick("new", [f"auto* {name} = new {type_}({args});", f"torch::optim::Optimizer* {name} = new {type_}({args});",
                                         f"std::unique_ptr<torch::optim::Optimizer> {name}(new {type_}({args}));"])
        elif form == "by_name":
            parameter_type = "torch::optim::Optimizer"
            local = (f'const std::string optimizer_type = "{kind.lower()}";\nstd::unique_ptr<torch::optim::Optimizer> {name};\n'
                     f'if (optimizer_type == "plain") {{\n{name} = std::make_unique<torch::optim::SGD>({parameters}, 0.1);\n}} else {{\n'
                     f'{name} = std::make_unique<{type_}>({args});\n}}')
        else:
            local = f"auto {name} = std::make_{form}<{type_}>({args});"
        if "torch::optim::Optimizer" in local:
            parameter_type = "torch::optim::Optimizer"
        self.form = form
        joined = "\n".join(before + [local])
        self.groups = groups
        self.var = Var(name, type_ if not pointer else f"std::{'shared' if form == 'shared' else 'unique'}_ptr<{type_}>", args, pointer=pointer,
                       parameter=f"{parameter_type}& {name}", parameter_is_pointer=False,
                       passed=f"*{name}" if pointer else name, local=joined,
                       deferred=f"std::unique_ptr<{type_}> {name};" if form != "shared" else f"std::shared_ptr<{type_}> {name};",
                       assignment="\n".join(before + [f"{name} = std::make_{'shared' if form == 'shared' else 'unique'}<{type_}>({args});"]),
                       deferred_pointer=True)
        self.options_type = f"torch::optim::{kind}Options"


class Schedule:
    """How the learning rate changes, once an epoch."""

    def __init__(self, choices, optimizer):
        self.form = choices.pick("schedule", ["none", "StepLR", "by_hand", "own_class", "set_lr", "Plateau"], [6, 2, 2, 1, 1, 1])
        self.optimizer = optimizer
        self.types = []
        self.vars = []
        if self.form == "own_class":
            self.types = ["class CosineSchedule {", "public:", "CosineSchedule(double first, int total) : first_(first), total_(total) {}",
                          "void apply(torch::optim::Optimizer& target, int epoch) const {",
                          "for (auto& group : target.param_groups()) {",
                          f"static_cast<{optimizer.options_type}&>(group.options()).lr(0.5 * first_ * (1 + std::cos(3.14159 * epoch / total_)));",
                          "}", "}", "private:", "double first_;", "int total_;", "};"]

    def declared(self, reach):
        """Statements behind the optimizer, in the function that has the epochs."""
        object_ = reach.object(self.optimizer.var.name)
        if self.form == "StepLR":
            return [f"torch::optim::StepLR scheduler({object_}, 1, 0.7);"]
        if self.form == "Plateau":
            return [f"torch::optim::ReduceLROnPlateauScheduler scheduler({object_}, torch::optim::ReduceLROnPlateauScheduler::min, 0.5f, 0);"]
        if self.form == "own_class":
            return ["CosineSchedule schedule(0.01, 5);"]
        return []

    def after_epoch(self, reach, metric):
        name = self.optimizer.var.name
        if self.form == "StepLR":
            return ["scheduler.step();"]
        if self.form == "Plateau":
            return [f"scheduler.step({metric});"]
        if self.form == "own_class":
            return [f"schedule.apply({reach.object(name)}, epoch);"]
        if self.form == "by_hand":
            return [f"for (auto& group : {reach.dot(name)}param_groups()) {{",
                    f"auto& options = static_cast<{self.optimizer.options_type}&>(group.options());",
                    "options.lr(options.lr() * 0.8);", "}"]
        if self.form == "set_lr":
            return ["if (epoch == 1) {", f"for (auto& group : {reach.dot(name)}param_groups()) {{",
                    "group.options().set_lr(group.options().get_lr() * 0.5);", "}", "}"]
        return []
