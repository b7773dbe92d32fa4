"""One training: task, model, batches, loss, optimizer, and the statements of an
epoch and of an evaluation. How they become functions is structure.py's affair."""

from layers import Grammar, make_model
from losses import Loss
from optimizers import Optimizer, Schedule
from sources import Sizes, loader_source, make_source, make_task, make_values
from text import Reach, Var


class Training:
    def __init__(self, choices, outputs, real, device):
        self.choices, self.outputs, self.real, self.device = choices, outputs, real, device
        self.task = make_task(choices, real)
        self.task.dataset = choices.pick("dataset_name", ["ToyDataset", "CustomDataset", "SyntheticData"])
        grammar = Grammar(choices.within("model"), real)
        getattr(grammar, self.task.shape)(*self.task.model_sizes)
        self.model = make_model(choices.within("model"), grammar, choices.pick("model_type", ["Net", "Model", "Classifier", "MyModel"]))
        self.net = self.model.var.name
        self.sizes = Sizes(choices, self.model.needs_two_rows)
        self.x, self.y = choices.pick("batch_names", [("x", "y"), ("data", "target"), ("input", "label"), ("features", "labels")])
        device_name = "device" if device else ""
        self.source = make_source(choices.within("data"), self.task, real, self.sizes, self.x, self.y, device_name)
        self.loss = Loss(choices, self.task, real)
        self.optimizer = Optimizer(choices, self.model.var, self.model.has_key_bias)
        self.schedule = Schedule(choices, self.optimizer)
        self.epochs = choices.integer("epochs", 2, 3)
        self.call_style = choices.pick("call", ["forward", "call"])
        self.test = self._make_test()
        self.needs_log = outputs.log

    # What there is.

    def types(self):
        result = list(self.source.types)
        if self.test_source and not self.source.loads:
            result += self.test_source.types
        return [self.model.types, result, self.schedule.types]

    def constants(self):
        # The number of rows of the test set, its batch size: also with rests and few rows.
        return [("train_rows", self.sizes.rows), ("batch_size", self.sizes.batch),
                ("test_rows", self.choices.integer("test_rows", 3, 17)), ("test_batch", self.choices.pick("test_batch", [5, 2, 4, 8, 10, 32]))]

    def model_statements(self, reach):
        lines = []
        if self.device:
            lines.append(f"{reach.dot(self.net)}to(device);")
        if self.real:
            lines.append(f"{reach.dot(self.net)}to(torch::kDouble);")
        return lines

    def _make_test(self):
        """Variables that hold the test set."""
        self.test_source = None
        form = self.choices.pick("test_set", ["like_training", "tensors", "none"], [5, 3, 1])
        if form == "none":
            return []
        if form == "like_training" and self.source.loads:
            self.test_source = loader_source(self.choices.within("test"), self.task, self.real, self.sizes, "test_x", "test_y",
                                             "device" if self.device else "", "test", False)
            return self.test_source.variables
        lines = make_values(self.task, self.real, "test_rows", "test_inputs", "test_targets", "torch::Tensor ")
        return [Var(name, "torch::Tensor", parameter=f"const torch::Tensor& {name}", local=line, deferred=f"torch::Tensor {name};",
                    assignment=line.replace("torch::Tensor ", "", 1))
                for line, name in zip(lines, ("test_inputs", "test_targets"))]

    def epoch_variables(self):
        return [self.model.var, self.optimizer.var, *self.source.variables]

    def test_variables(self):
        return [self.model.var, *self.test]

    # The step.

    def forward(self, reach):
        return f"auto output = {self.model.call(reach, self.x, self.call_style)};"

    def metric(self, reach):
        """Declarations in front of the loop, statements in it, and what is said of it."""
        kinds = ["none", "item"]
        if self.task.kind == "classes":
            kinds += ["correct", "compare_rows", "accessor", "max", "vector", "data_ptr"]
        elif self.task.kind == "tokens":
            kinds += ["tokens", "data_ptr"]
        else:
            kinds += ["error", "data_ptr", "error_rows"]
        kind = self.choices.pick("metric", kinds)
        y = self.y
        if self.task.kind == "classes":
            n = self.task.outputs
            confusion = {
                "matrix_tensor": ([f"auto matrix = torch::zeros({{{n}, {n}}}, torch::kLong);"],
                                  ["auto chosen = output.argmax(1);", f"for (int64_t i = 0; i < chosen.size(0); ++i) {{",
                                   f"matrix[{y}[i].item<int64_t>()][chosen[i].item<int64_t>()] += 1;", "}"], ("count", "matrix.trace().item<int64_t>()")),
                "matrix_vector": ([f"std::vector<std::vector<int>> matrix({n}, std::vector<int>({n}, 0));"],
                                  ["auto chosen = std::get<1>(torch::max(output, 1));", f"for (int64_t i = 0; i < {y}.size(0); ++i) {{",
                                   f"matrix[{y}[i].item<int64_t>()][chosen[i].item<int64_t>()]++;", "}"], ("count", "matrix[0][0] + 10 * matrix[1][1]")),
                "topk": (["double top = 0;"], ["auto two = std::get<1>(output.topk(2, 1));", f"top += two.eq({y}.unsqueeze(1)).any(1).to(torch::kDouble).mean().item<double>();"],
                         ("number", "top"))}
            more = self.choices.pick("class_metric", ["", *confusion], [6, 1, 1, 1])
            if more:
                return confusion[more]
        result = {
            "none": ([], [], None),
            "item": (["double magnitude = 0;"], ["magnitude += output.abs().sum().item<double>();"], ("number", "magnitude")),
            "correct": (["int64_t correct = 0;"], [f"correct += output.argmax(1).eq({y}).sum().item<int64_t>();"], ("count", "correct")),
            "max": (["int64_t correct = 0;"], ["auto best = std::get<1>(output.max(1));",
                                               f"correct += (best == {y}).sum().item().toLong();"], ("count", "correct")),
            "compare_rows": (["int correct = 0;"], ["auto predicted = output.argmax(1);", f"for (int64_t i = 0; i < {y}.size(0); ++i) {{",
                                                    f"if (predicted[i].item<int64_t>() == {y}[i].item<int64_t>()) {{", "++correct;", "}", "}"],
                             ("count", "correct")),
            "accessor": (["double certain = 0;"], ["auto probability = torch::softmax(output, 1).detach();",
                                                   "auto p = probability.accessor<double, 2>();",
                                                   "for (int64_t i = 0; i < p.size(0); ++i) {", "certain += p[i][0];", "}"], ("number", "certain")),
            "vector": (["int64_t hits = 0;"], ["auto guesses = output.argmax(1).to(torch::kCPU).contiguous();",
                                               "std::vector<int64_t> guessed(guesses.data_ptr<int64_t>(), guesses.data_ptr<int64_t>() + guesses.numel());",
                                               "for (auto g : guessed) {", "hits += g * g;", "}"], ("count", "hits")),
            "data_ptr": (["double largest = -1e9;"], ["auto host = output.detach().cpu().contiguous();",
                                                      "const double* values = host.data_ptr<double>();",
                                                      "for (int64_t i = 0; i < host.numel(); ++i) {",
                                                      "largest = std::max(largest, values[i]);", "}"], ("number", "largest")),
            "tokens": (["int64_t correct = 0;"], [f"correct += (output.argmax(-1) == {y}).sum().item<int64_t>();"], ("count", "correct")),
            "error": (["double error = 0;"], [f"error += (output - {y}).abs().mean().item<double>();"], ("number", "error")),
            "error_rows": (["double worst = 0;"], [f"auto errors = (output - {y}).detach().abs().flatten(1).sum(1);",
                                                   "for (int64_t i = 0; i < errors.size(0); ++i) {",
                                                   "worst = std::max(worst, errors[i].item<double>());", "}"], ("number", "worst")),
        }
        return result[kind]

    def epoch(self, reach):
        """Statements of an epoch; they declare `double epoch_loss`."""
        choose, model, opt = self.choices, self.net, self.optimizer.var.name
        zero_at = choose.pick("zero_grad", ["before_forward", "before_backward", "model", "after_step", "set_to_none"], [4, 3, 1, 1, 1])
        every = choose.pick("accumulate_by_hand", [0, 2, 3], [10, 1, 1])
        clip = choose.pick("clip", ["", "norm", "value", "norm_value_used"], [6, 2, 1, 1])
        running = choose.pick("running", ["item", "weighted", "tensor", "vector", "double_of"], [5, 2, 1, 1, 1])
        said = choose.pick("print_every", [0, 1, 2, 3], [1, 2, 2, 1])
        single = self.source.single
        declared, measured, metric = self.metric(reach)

        before = [f"{reach.dot(model)}train();"] if choose.flag("train_mode", 0.8) else []
        before += self.loss.declared
        before += {"tensor": ["auto running_loss = torch::zeros({}, torch::kDouble);"], "vector": ["std::vector<double> losses;"]}.get(
            running, ["double running_loss = 0.0;"])
        before += ["int64_t batch_index = 0;"] + (["int64_t seen = 0;"] if running == "weighted" else []) + declared
        if every or zero_at == "after_step":
            before.append(f"{reach.dot(opt)}zero_grad();")
        before += self.source.before(reach)

        x = self.x
        body = list(self.source.fetch(reach))
        zero = f"{reach.dot(model)}zero_grad();" if zero_at == "model" else f"{reach.dot(opt)}zero_grad({'true' if zero_at == 'set_to_none' else ''});"
        if not every and zero_at in ("before_forward", "model", "set_to_none"):
            body.append(zero)
        if choose.flag("augment", 0.08) and self.task.kind in ("classes", "values") and not self.bound_names():
            body += ["if (torch::rand({1}).item<double>() < 0.5) {", f"{x} = {x}.flip({{-1}});", "}"]
        if choose.flag("noise", 0.12) and self.task.kind != "tokens":
            if reach is not None and self.bound_names():
                body += [f"auto noisy = {x} + 0.05 * torch::randn_like({x});", self.forward(reach).replace(f"({x})", "(noisy)")]
            else:
                body += [f"{x} = {x} + 0.05 * torch::randn_like({x});", self.forward(reach)]
        else:
            body.append(self.forward(reach))
        body += self.loss.lines("output", self.y, model, reach)
        if choose.flag("nan_check", 0.15):
            body += ["if (std::isnan(loss.item<double>())) {", *self.outputs.say(["loss is not a number"]), "break;", "}"] \
                if not single else []
        if not every and zero_at == "before_backward":
            body.append(zero)
        body.append(f"(loss / {every}.0).backward();" if every and choose.flag("divide_in_place") else
                    "loss.backward();" if not every else f"loss = loss / {every}.0;\nloss.backward();")
        if choose.flag("read_gradients", 0.12):
            before.append("double gradient_norm = 0;")
            body += [f"for (const auto& p : {reach.dot(model)}parameters()) {{", "if (p.grad().defined()) {",
                     "gradient_norm += p.grad().pow(2).sum().item<double>();", "}", "}"]
        parameters = f"{reach.dot(model)}parameters()"
        clipping = {"": [], "norm": [f"torch::nn::utils::clip_grad_norm_({parameters}, 0.5);"],
                    "value": [f"torch::nn::utils::clip_grad_value_({parameters}, 0.1);"],
                    "norm_value_used": [f"auto norm = torch::nn::utils::clip_grad_norm_({parameters}, 1.0);"]}[clip]
        if clip == "norm_value_used":
            before.append("double norms = 0;")
            clipping.append("norms += norm;")
        stepping = [*clipping, f"{reach.dot(opt)}step();"]
        if every:
            body += [f"if ((batch_index + 1) % {every} == 0) {{", *stepping, f"{reach.dot(opt)}zero_grad();", "}"]
        else:
            body += stepping
            if zero_at == "after_step":
                body.append(zero)
        body += {"item": ["running_loss += loss.item<double>();"],
                 "weighted": [f"running_loss += loss.item<double>() * {x}.size(0);", f"seen += {x}.size(0);"],
                 "tensor": ["running_loss = running_loss + loss.detach();"],
                 "vector": ["losses.push_back(loss.item<double>());"],
                 "double_of": ["running_loss += loss.detach().cpu().item().toDouble();"]}[running]
        body += measured
        if said:
            message = ["epoch ", ("count", "epoch"), " batch ", ("count", "batch_index"), " loss ", ("number", "loss.item<double>()")]
            if choose.flag("say_size", 0.2):
                message += [" rows ", ("count", f"{x}.size(0)")]
            if said == 1:
                body += self.outputs.say(message)
            else:
                body += [f"if (batch_index % {said} == 0) {{", *self.outputs.say(message), "}"]
        shown = choose.pick("show_tensor", ["", "loss", "item", "sizes", "row", "learning_rate"], [12, 1, 1, 1, 1, 1])
        if shown:
            text = {"loss": 'std::cout << "loss: " << loss << std::endl;', "item": 'std::cout << "loss: " << loss.item() << std::endl;',
                    "sizes": f"std::cout << {x}.sizes() << ' ' << output.sizes() << std::endl;",
                    "row": f"std::cout << output[0] << '\\n';",
                    "learning_rate": f"std::cout << \"rate \" << {reach.dot(opt)}param_groups()[0].options().get_lr() << std::endl;"}[shown]
            body.append(text)
        progress = choose.flag("progress", 0.12)
        if progress:
            body.append('std::cout << "\\rbatch " << batch_index << " of the epoch" << std::flush;')
        body.append("++batch_index;")
        if choose.flag("at_most", 0.08) and not self.source.whole:
            body += ["if (batch_index >= 3) {", "break;", "}"]

        after = ["std::cout << std::endl;"] if progress else []
        if not every and choose.flag("backward_at_end", 0.06):
            # One step an epoch, on the sum of the batches' losses.
            steps = [zero, "loss.backward();", f"{reach.dot(opt)}step();"]
            body = [line for line in body if line not in steps and line not in clipping]
            body.insert(body.index("++batch_index;"), "total_loss = total_loss + loss;")
            before.append("torch::Tensor total_loss = torch::zeros({}, torch::kDouble);")
            after += [zero, "total_loss.backward();", f"{reach.dot(opt)}step();"]
        if every and choose.flag("rest_step", 0.6):
            after += [f"if (batch_index % {every} != 0) {{", f"{reach.dot(opt)}step();", "}"]
        divided = choose.pick("divided", ["batches", "rows"])
        total = {"tensor": "running_loss.item<double>()", "vector": "std::accumulate(losses.begin(), losses.end(), 0.0)"}.get(running, "running_loss")
        by = "seen" if running == "weighted" else "std::max<int64_t>(batch_index, 1)" if divided == "batches" else "train_rows"
        after.append(f"double epoch_loss = {total} / {by};")
        if metric:
            after += self.outputs.say(["train metric ", metric])
        if choose.flag("csv", 0.08):
            after += ['std::ofstream file("losses.csv", std::ios::app);',
                      'file << std::setprecision(12) << epoch << "," << epoch_loss << std::endl;']
        for name in ("gradient_norm", "norms"):
            if f"double {name} = 0;" in before:
                after += self.outputs.say([f"{name} ", ("number", name)])
        loop = [self.source.head(reach) + " {", body, "}"]
        return [before, loop, after]

    def bound_names(self):
        """Whether x and y are const references (structured bindings of a const batch)."""
        return not self.source.fetch(Reach(set()))

    # Evaluation.

    def evaluation(self, reach):
        """Statements of an evaluation; they declare `double test_loss`."""
        choose = self.choices
        lines = [f"{reach.dot(self.net)}eval();"] if choose.flag("eval_mode", 0.85) else []
        lines.append(choose.pick("no_grad", ["torch::NoGradGuard no_grad;", "torch::NoGradGuard guard;", "torch::InferenceMode guard;"], [5, 2, 1]))
        lines.append("double test_loss = 0;")
        metric = choose.pick("test_metric", ["correct", "items", "gathered", "whole_tensor", "host"])
        output, target = "test_output", "test_y"
        compare = {"classes": f"{output}.argmax(1).eq({target}).sum().item<int64_t>()",
                   "tokens": f"({output}.argmax(-1) == {target}).sum().item<int64_t>()"}.get(
            self.task.kind, f"(({output} - {target}).abs() < 0.5).sum().item<int64_t>()")
        score = {"classes": f"torch::nn::functional::cross_entropy({output}, {target}, torch::nn::functional::CrossEntropyFuncOptions().reduction(torch::kSum))",
                 "tokens": f"torch::nn::functional::cross_entropy({output}.reshape({{-1, {self.task.outputs}}}), {target}.reshape(-1), torch::nn::functional::CrossEntropyFuncOptions().reduction(torch::kSum))"
                 }.get(self.task.kind, f"torch::mse_loss({output}, {target}, torch::Reduction::Sum)")
        before, inner, after, values = [], [], [], []
        inner.append(f"test_loss += {score}.item<double>();")
        if metric in ("correct", "items"):
            before.append("int64_t right = 0;")
            inner.append(f"right += {compare};")
            values = [" right ", ("count", "right")]
        elif metric == "gathered":
            before.append("std::vector<torch::Tensor> outputs;")
            inner.append(f"outputs.push_back({output}.clone());")
            after.append("auto all = torch::cat(outputs, 0);")
            values = [" spread ", ("number", "all.std().item<double>()"), " rows ", ("count", "all.size(0)")]
        elif metric == "whole_tensor":
            before.append("auto sums = torch::zeros({}, torch::kDouble);")
            inner.append(f"sums += {output}.pow(2).sum();")
            values = [" squares ", ("number", "sums.item<double>()")]
        else:
            before += ["double first = 0;", "int64_t rows_seen = 0;"]
            inner += [f"auto table = {output}.cpu().reshape({{{output}.size(0), -1}}).contiguous();", "auto cells = table.accessor<double, 2>();",
                      "for (int64_t i = 0; i < cells.size(0); ++i) {", "first += cells[i][0];", "++rows_seen;", "}"]
            values = [" first ", ("number", "first"), " rows ", ("count", "rows_seen")]
        call = self.model.call(reach, "test_x", self.call_style)
        if self.test_source:
            loop = [*self.test_source.before(reach), self.test_source.head(reach) + " {", *self.test_source.fetch(reach),
                    f"auto {output} = {call};", *inner, "}"]
        else:
            to_device = ".to(device)" if self.device else ""
            form = choose.pick("test_loop", ["whole", "slices", "rows"], [3, 2, 1])
            if form == "whole":
                loop = [f"auto test_x = test_inputs{to_device};", f"auto test_y = test_targets{to_device};", f"auto {output} = {call};", *inner]
            elif form == "slices":
                loop = ["for (int64_t at = 0; at < test_rows; at += test_batch) {",
                        "auto until = std::min<int64_t>(at + test_batch, test_rows);",
                        f"auto test_x = test_inputs.slice(0, at, until){to_device};", f"auto test_y = test_targets.slice(0, at, until){to_device};",
                        f"auto {output} = {call};", *inner, "}"]
            else:
                loop = ["for (int64_t i = 0; i < test_rows; ++i) {", f"auto test_x = test_inputs[i].unsqueeze(0){to_device};",
                        f"auto test_y = test_targets[i].unsqueeze(0){to_device};", f"auto {output} = {call};", *inner, "}"]
        message = ["test loss ", ("number", "test_loss")] + values
        return [lines, before, loop, after, "test_loss /= static_cast<double>(test_rows);", self.outputs.say(message)]
