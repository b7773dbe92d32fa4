"""Trainings that are no loop of forward, loss, backward and step: several models and
optimizers, updates by hand, closures, gradients of gradients, policies."""

from layers import Grammar, make_model
from sources import Sizes, Task, make_source
from text import Reach


class Special:
    """What a special training is made of; `build` of a subject fills it in."""

    def __init__(self, choices, outputs, real):
        self.choices, self.outputs, self.real = choices, outputs, real
        self.dtype = ", torch::kDouble"
        self.types, self.setup, self.loop, self.models = [], [], [], []
        self.sizes = []
        self.pointers = set()

    def model(self, variable, type_, inputs, outputs, end="x", norms=True):
        """A network of vectors; what calls it."""
        choices = self.choices.within(variable)
        if not norms:
            choices.plain = choices.plain | {f"{choices.scope}norm{key}" for key in range(3)}
        grammar = Grammar(choices, self.real)
        grammar.vector(inputs, outputs)
        if end == "sigmoid":
            grammar.function("torch::sigmoid(x)", "torch::nn::Sigmoid()")
        made = make_model(choices, grammar, type_, variable)
        self.add(made)
        return made

    def add(self, made):
        self.models.append(made)
        self.types.append(made.types)
        self.setup += made.var.declaration()
        if made.var.pointer:
            self.pointers.add(made.var.name)
        if self.real:
            self.setup.append(f"{self.dot(made)}to(torch::kDouble);")

    def dot(self, made):
        return made.var.name + ("->" if made.var.pointer else ".")

    def call(self, made, arguments):
        return f"{self.dot(made)}forward({arguments})"

    def optimizer(self, name, made, parameters=None):
        kind, options = self.choices.pick(f"{name}_kind", [
            ("Adam", "1e-2"), ("SGD", "0.05"), ("RMSprop", "2e-3"), ("AdamW", "5e-3"),
            ("Adam", "torch::optim::AdamOptions(2e-3).betas({0.5, 0.999})"), ("SGD", "torch::optim::SGDOptions(0.02).momentum(0.9)")])
        parameters = parameters or f"{self.dot(made)}parameters()"
        self.setup.append(self.choices.pick(f"{name}_form", [f"torch::optim::{kind} {name}({parameters}, {options});",
                                                             f"auto {name} = torch::optim::{kind}({parameters}, {options});"]))

    def batches(self, features, outputs=1, kind="values", two_rows=False):
        """The loop over batches x, y; the statements in front of it."""
        task = Task(kind, f"{features}", outputs, "vector")
        sizes = Sizes(self.choices, two_rows or any(made.needs_two_rows for made in self.models))
        self.source = make_source(self.choices.within("data"), task, self.real, sizes, "x", "y", "")
        self.types.append(self.source.types)
        for var in self.source.variables:
            self.setup += var.declaration()
            if var.pointer:
                self.pointers.add(var.name)
        self.sizes = [("train_rows", sizes.rows), ("batch_size", sizes.batch)]

    def epochs(self, body, ends=(), count=None, begins=()):
        reach = Reach(self.pointers)
        count = count or self.choices.integer("epochs", 2, 3)
        self.loop += [f"for (int epoch = 0; epoch < {count}; ++epoch) {{", *begins, *self.source.before(reach), self.source.head(reach) + " {",
                      *self.source.fetch(reach), *body, "}", *ends, "}"]

    def weights(self):
        lines = ["double weights_sum = 0;"]
        for made in self.models:
            lines += [f"for (const auto& p : {self.dot(made)}parameters()) {{", "weights_sum += p.abs().sum().item<double>();", "}"]
        return lines + self.outputs.say(["weights ", ("number", "weights_sum")])

    def constants(self):
        return self.sizes

    def say(self, *parts):
        return self.outputs.say(list(parts))


def number(text):
    return ("number", text)


def gan(s):
    size, noise = s.choices.integer("features", 2, 4), s.choices.integer("noise_size", 2, 4)
    wasserstein = s.choices.pick("gan", ["bce", "bce_sigmoid", "clamped", "penalty", "least_squares"])
    generator = s.model("generator", "Generator", noise, size)
    critic = s.model("discriminator", "Discriminator", size, 1, "sigmoid" if wasserstein == "bce_sigmoid" else "x", False)
    s.optimizer("g_optimizer", generator)
    s.optimizer("d_optimizer", critic)
    s.batches(size, 1, "copies")
    z = s.choices.pick("noise", [f"torch::randn({{x.size(0), {noise}}}{s.real})", f"torch::randn({{batch_size, {noise}}}{s.real})",
                                 f"torch::rand({{x.size(0), {noise}}}, x.options()) * 2 - 1"])
    if wasserstein == "penalty":
        z = z.replace("batch_size", "x.size(0)")
    ones = s.choices.pick("ones", ["torch::ones_like({})", "torch::ones({{{}.size(0), 1}}" + s.dtype + ")", "torch::full({{{}.size(0), 1}}, 0.9" + s.dtype + ")",
                                   "torch::empty({{{}.size(0), 1}}" + s.dtype + ").uniform_(0.8, 1.0)"])
    bce = "torch::nn::functional::binary_cross_entropy_with_logits" if wasserstein == "bce" else "torch::binary_cross_entropy"
    body = s.choices.pick("g_zero", [[f"{s.dot(critic)}zero_grad();"], ["d_optimizer.zero_grad();"]])
    body += [f"auto noise = {z};", f"auto fake = {s.call(generator, 'noise')};", f"auto real_score = {s.call(critic, 'x')};",
             f"auto fake_score = {s.call(critic, 'fake.detach()')};"]
    one_call = s.choices.flag("two_backwards", 0.3) and wasserstein.startswith("bce")
    if wasserstein.startswith("bce"):
        real_loss = f"{bce}(real_score, {ones.format('real_score')})"
        fake_loss = f"{bce}(fake_score, torch::zeros_like(fake_score))"
        if one_call:
            body += [f"auto real_loss = {real_loss};", "real_loss.backward();", f"auto fake_loss = {fake_loss};", "fake_loss.backward();",
                     "auto d_loss = real_loss + fake_loss;"]
        else:
            body += [f"auto d_loss = {real_loss} + {fake_loss};", "d_loss.backward();"]
        g_loss = f"{bce}(judged, torch::ones_like(judged))"
    elif wasserstein == "least_squares":
        body += ["auto d_loss = 0.5 * ((real_score - 1).pow(2).mean() + fake_score.pow(2).mean());", "d_loss.backward();"]
        g_loss = "0.5 * (judged - 1).pow(2).mean()"
    else:
        body.append("auto d_loss = fake_score.mean() - real_score.mean();" if wasserstein == "clamped" else
                    "torch::Tensor d_loss = fake_score.mean() - real_score.mean();")
        if wasserstein == "penalty":
            body += [f"auto alpha = torch::rand({{x.size(0), 1}}{s.real});",
                     "auto between = (alpha * x + (1 - alpha) * fake.detach()).set_requires_grad(true);" if False else
                     "auto between = (alpha * x + (1 - alpha) * fake.detach()).detach().requires_grad_(true);",
                     f"auto between_score = {s.call(critic, 'between')};",
                     "auto slopes = torch::autograd::grad({between_score}, {between}, {torch::ones_like(between_score)}, true, true)[0];",
                     "d_loss = d_loss + 10.0 * (slopes.norm(2, 1) - 1).pow(2).mean();"]
        body.append("d_loss.backward();")
        g_loss = "-judged.mean()"
    body.append("d_optimizer.step();")
    if wasserstein == "clamped":
        body += ["{", "torch::NoGradGuard no_grad;", f"for (auto& p : {s.dot(critic)}parameters()) {{", "p.clamp_(-0.3, 0.3);", "}", "}"]
    again = s.choices.flag("new_noise", 0.3)
    step = [f"auto judged = {s.call(critic, 'again' if again else 'fake')};"]
    if again:
        step.insert(0, f"auto again = {s.call(generator, z)};")
    step += ["g_optimizer.zero_grad();", f"auto g_loss = {g_loss};", "g_loss.backward();", "g_optimizer.step();",
             *s.say("d ", number("d_loss.item<double>()"), " g ", number("g_loss.item<double>()"))]
    if s.choices.flag("critic_steps", 0.25):
        body += ["if (++steps % 2 == 0) {", *step, "}"]
        s.setup.append("int64_t steps = 0;")
    else:
        body += step
    s.setup.append(f"auto fixed_noise = torch::randn({{5, {noise}}}{s.real});")
    s.epochs(body, ["{", "torch::NoGradGuard no_grad;", f"auto samples = {s.call(generator, 'fixed_noise')};",
                    *s.say("samples ", number("samples.mean().item<double>()"), " ", number("samples[0][0].item<double>()")), "}"])


def by_hand(s):
    size = s.choices.integer("features", 2, 5)
    layers = s.choices.flag("hidden_layer", 0.5)
    width = 6 if layers else 1
    s.batches(size, 1, "values")
    options = "torch::TensorOptions().dtype(torch::kDouble)"
    grads = s.choices.pick("requires_grad", ["options", "set", "underscore"])
    names = [("w1", f"{{{size}, {width}}}"), ("b1", f"{{{width}}}")] + ([("w2", "{6, 1}"), ("b2", "{1}")] if layers else [])
    for name, sizes in names:
        fill = "randn" if name[0] == "w" else "zeros"
        if grads == "options":
            s.setup.append(f"auto {name} = torch::{fill}({sizes}, {options}.requires_grad(true));")
        elif grads == "set":
            s.setup += [f"auto {name} = torch::{fill}({sizes}, {options});", f"{name}.set_requires_grad(true);"]
        else:
            s.setup.append(f"auto {name} = torch::{fill}({sizes}, {options}).requires_grad_();")
    product = s.choices.pick("product", ["torch::mm({}, {}) + {}", "torch::matmul({}, {}) + {}", "{}.mm({}).add({})", "torch::addmm({2}, {0}, {1})"])
    at = "x"
    body = []
    if layers:
        body.append(f"auto hidden = torch::{s.choices.pick('activation', ['tanh', 'relu', 'sigmoid'])}({product.format('x', 'w1', 'b1')});")
        at = "hidden"
    last = "2" if layers else "1"
    body += [f"auto predicted = {product.format(at, 'w' + last, 'b' + last)};",
             "auto loss = " + s.choices.pick("loss", ["(predicted - y).pow(2).mean()", "torch::mse_loss(predicted, y)", "(predicted - y).pow(2).sum() / x.size(0)"]) + ";",
             "loss.backward();"]
    update = s.choices.pick("update", ["guard", "data", "function", "list"])
    letters = [name for name, _ in names]
    if update == "guard":
        body += ["{", "torch::NoGradGuard no_grad;", *[f"{n} -= 0.05 * {n}.grad();" for n in letters],
                 *[s.choices.pick("clear", [f"{n}.grad().zero_();", f"{n}.mutable_grad().zero_();", f"{n}.mutable_grad() = torch::Tensor();"]) for n in letters], "}"]
        body = [line if "mutable_grad() =" not in line else line for line in body]
    elif update == "data":
        body += [*[f"{n}.data() -= 0.05 * {n}.grad().data();" for n in letters], *[f"{n}.grad().data().zero_();" for n in letters]]
    elif update == "function":
        s.types.append(["void sgd(std::vector<torch::Tensor> params, double lr, int64_t batch) {", "torch::NoGradGuard no_grad;",
                        "for (auto& param : params) {", "param.sub_(lr * param.grad() / batch);", "param.grad().zero_();", "}", "}"])
        body.append(f"sgd({{{', '.join(letters)}}}, 0.2, x.size(0));")
    else:
        body += [f"for (auto& p : std::vector<torch::Tensor>{{{', '.join(letters)}}}) {{", "torch::NoGradGuard no_grad;", "p.sub_(p.grad(), 0.05);",
                 "p.grad().zero_();", "}"]
    body += s.say("loss ", number("loss.item<double>()"))
    s.epochs(body, s.say("w ", number("w1.abs().sum().item<double>()"), " b ", number("b1.sum().item<double>()")))


def closure(s):
    size = s.choices.integer("features", 2, 4)
    net = s.model("model", "Regressor", size, 1, norms=False)
    s.batches(size, 1, "values")
    kind = s.choices.pick("optimizer", ["torch::optim::LBFGS optimizer({}, torch::optim::LBFGSOptions(0.3).max_iter(3));",
                                        "torch::optim::LBFGS optimizer({}, torch::optim::LBFGSOptions(0.5).max_iter(3).line_search_fn(\"strong_wolfe\"));",
                                        "torch::optim::SGD optimizer({}, 0.05);", "torch::optim::Adam optimizer({}, 1e-2);"])
    s.setup.append(kind.format(f"{s.dot(net)}parameters()"))
    inner = ["optimizer.zero_grad();", f"auto loss = torch::mse_loss({s.call(net, 'x')}, y);", "loss.backward();", "return loss;"]
    if s.choices.flag("named", 0.6):
        body = ["auto closure = [&]() -> torch::Tensor {", *inner, "};", "auto loss = optimizer.step(closure);"]
    else:
        body = ["auto loss = optimizer.step([&]() {", *inner, "});"]
    # A closure cannot capture structured bindings.
    fetch = s.source.fetch
    s.source.fetch = lambda reach: [line.replace("auto [x, y] = ", "torch::Tensor x, y;\nstd::tie(x, y) = ") for line in fetch(reach)]
    head = s.source.head
    if "[x, y]" in head(Reach(s.pointers)):
        s.source.head = lambda reach: head(reach).replace("const auto& [x, y]", "const auto& bound")
        s.source.fetch = lambda reach: ["auto x = std::get<0>(std::tie(bound.first, bound.second));", "auto y = bound.second;"] \
            if "pair" in s.source.variables[0].type else ["auto x = bound.inputs;", "auto y = bound.targets;"]
    s.epochs(body + s.say("loss ", number("loss.item<double>()")), s.weights(), 2)
    s.loop = [line for line in s.loop]


def policy(s):
    size, actions = s.choices.integer("features", 2, 5), s.choices.integer("actions", 2, 4)
    actor = s.model("policy", "Policy", size, actions)
    critic = s.choices.flag("critic", 0.5)
    if critic:
        value = s.model("value", "Value", size, 1)
        s.optimizer("value_optimizer", value)
    s.optimizer("optimizer", actor)
    s.batches(size, actions, "classes")
    body = [f"auto logits = {s.call(actor, 'x')};", "auto probs = torch::softmax(logits, -1);"]
    body += s.choices.pick("sample", [["auto actions = probs.detach().multinomial(1).squeeze(1);"], ["auto actions = torch::multinomial(probs, 1).squeeze(-1);"],
                                      ["auto actions = probs.argmax(1);"]])
    body += ["auto rewards = actions.eq(y).to(torch::kDouble);",
             "auto log_probs = " + s.choices.pick("log_probs", ["torch::log_softmax(logits, -1).gather(1, actions.unsqueeze(1)).squeeze(1)",
                                                               "torch::log(probs.gather(1, actions.unsqueeze(-1)).squeeze(-1))"]) + ";"]
    if critic:
        body += [f"auto values = {s.call(value, 'x')}.squeeze(-1);", "auto advantage = rewards - values.detach();",
                 "auto value_loss = torch::mse_loss(values, rewards);", "value_optimizer.zero_grad();", "value_loss.backward();", "value_optimizer.step();"]
    else:
        body.append("auto advantage = " + s.choices.pick("baseline", ["rewards - rewards.mean()", "(rewards - rewards.mean()) / (rewards.std(false) + 1e-3)", "rewards - 0.5"]) + ";")
    body += ["auto entropy = -(probs * torch::log(probs + 1e-12)).sum(-1).mean();", "auto loss = -(log_probs * advantage).mean() - 0.01 * entropy;",
             "optimizer.zero_grad();", "loss.backward();", "optimizer.step();", "reward_sum += rewards.sum().item<double>();",
             *s.say("loss ", number("loss.item<double>()"), " entropy ", number("entropy.item<double>()"))]
    if s.choices.flag("host_rewards", 0.3):
        at = body.index("auto rewards = actions.eq(y).to(torch::kDouble);")
        body[at:at + 1] = ["std::vector<double> earned;", "for (int64_t i = 0; i < actions.size(0); ++i) {",
                           "earned.push_back(actions[i].item<int64_t>() == y[i].item<int64_t>() ? 1.0 : -0.5);", "}",
                           "auto rewards = torch::tensor(earned, torch::kDouble);"]
    s.setup.append("double reward_sum = 0;")
    s.epochs(body, s.say("rewards ", number("reward_sum")))


def target_network(s):
    size, actions = s.choices.integer("features", 2, 4), 3
    online = s.model("online", "QNetwork", size, actions, norms=False)
    second = make_like(s, online, "target_net")
    s.optimizer("optimizer", online)
    s.batches(size, actions, "classes")
    copy = s.choices.pick("copy", ["loop", "named", "state"])
    o, t = s.dot(online), s.dot(second)
    first = ["{", "torch::NoGradGuard no_grad;", f"auto from = {o}parameters();", f"auto to = {t}parameters();", "for (size_t i = 0; i < from.size(); ++i) {",
             "to[i].copy_(from[i]);", "}", "}"]
    s.setup += first
    body = [f"auto q = {s.call(online, 'x')}.gather(1, y.unsqueeze(1)).squeeze(1);", "torch::Tensor wanted;", "{", "torch::NoGradGuard no_grad;",
            f"auto next = std::get<0>({s.call(second, 'x.flip(1)')}.max(1));", "wanted = x.sum(1) + 0.9 * next;", "}",
            "auto loss = " + s.choices.pick("loss", ["torch::mse_loss(q, wanted)", "torch::smooth_l1_loss(q, wanted)", "(q - wanted).pow(2).mean()"]) + ";",
            "optimizer.zero_grad();", "loss.backward();", "optimizer.step();"]
    if copy == "loop":
        body += ["{", "torch::NoGradGuard no_grad;", f"auto source = {o}parameters();", f"auto copies = {t}parameters();", "for (size_t i = 0; i < source.size(); ++i) {",
                 "copies[i].mul_(0.9).add_(source[i], 0.1);", "}", "}"]
    elif copy == "named":
        body += ["{", "torch::NoGradGuard no_grad;", f"auto source = {o}named_parameters();", f"for (auto& item : {t}named_parameters()) {{",
                 "item.value().data().copy_(0.1 * source[item.key()].data() + 0.9 * item.value().data());", "}", "}"]
    else:
        s.setup.append("int64_t updates = 0;")
        body += ["if (++updates % 3 == 0) {", *first[1:-1], "}"]
    body += s.say("loss ", number("loss.item<double>()"))
    s.epochs(body, s.weights())


def make_like(s, made, variable):
    """A second variable of a model's type."""
    import copy
    second = copy.copy(made)
    second.var = copy.copy(made.var)
    old = made.var.name
    second.types = []
    second.var.name = variable
    import re
    second.var.local = re.sub(rf"\b{old}\b", variable, made.var.local)
    s.add(second)
    return second


def contrastive(s):
    size, code = s.choices.integer("features", 3, 6), s.choices.integer("code", 2, 4)
    encoder = s.model("encoder", "Encoder", size, code)
    s.optimizer("optimizer", encoder)
    s.batches(size, 3, "classes", True)
    form = s.choices.pick("contrast", ["in_batch", "triplet", "pairs", "cosine_pairs"])
    body = [f"auto first = {s.call(encoder, 'x')};", f"auto second = {s.call(encoder, 'x + 0.05 * torch::randn_like(x)')};"]
    if form == "in_batch":
        body += ["first = torch::nn::functional::normalize(first, torch::nn::functional::NormalizeFuncOptions().dim(1));",
                 "second = torch::nn::functional::normalize(second, torch::nn::functional::NormalizeFuncOptions().dim(1));",
                 "auto similarity = torch::matmul(first, second.t()) / 0.5;", f"auto wanted = torch::arange({s.choices.pick('rows', ['x.size(0)', 'similarity.size(0)'])}, torch::kLong);",
                 "auto loss = torch::nn::functional::cross_entropy(similarity, wanted);"]
    elif form == "triplet":
        body += ["auto other = first.roll(1, 0);", "auto loss = torch::nn::functional::triplet_margin_loss(first, second, other);"]
    elif form == "pairs":
        body += ["auto same = y.eq(y.roll(1, 0)).to(torch::kDouble);", "auto distance = torch::pairwise_distance(first, first.roll(1, 0));",
                 "auto loss = (same * distance.pow(2) + (1 - same) * torch::relu(1.0 - distance).pow(2)).mean();", "loss = loss + 0.1 * torch::mse_loss(first, second);"]
    else:
        body += ["auto sign = torch::where(y.eq(0), torch::ones_like(y), -torch::ones_like(y)).to(torch::kDouble);",
                 "auto loss = torch::nn::functional::cosine_embedding_loss(first, second, sign);"]
    body += ["optimizer.zero_grad();", "loss.backward();", "optimizer.step();", *s.say("loss ", number("loss.item<double>()"))]
    s.epochs(body)


def variational(s):
    size, code = s.choices.integer("features", 3, 6), 2
    s.types.append(["struct VAEImpl : torch::nn::Module {", "VAEImpl()", f": hidden(register_module(\"hidden\", torch::nn::Linear({size}, 8))),",
                    f"  mean(register_module(\"mean\", torch::nn::Linear(8, {code}))),", f"  spread(register_module(\"spread\", torch::nn::Linear(8, {code}))),",
                    f"  back(register_module(\"back\", torch::nn::Linear({code}, 8))),", f"  out(register_module(\"out\", torch::nn::Linear(8, {size}))) {{}}",
                    *s.choices.pick("vae_returns", [
                        ["std::tuple<torch::Tensor, torch::Tensor, torch::Tensor> forward(torch::Tensor x) {", "auto h = torch::relu(hidden(x));", "auto mu = mean(h);",
                         "auto log_var = spread(h);", "auto z = sample(mu, log_var);", "return std::make_tuple(out(torch::relu(back(z))), mu, log_var);", "}"],
                        ["std::vector<torch::Tensor> forward(torch::Tensor x) {", "auto h = torch::relu(hidden(x));", "auto mu = mean(h);",
                         "auto log_var = spread(h);", "auto z = sample(mu, log_var);", "return {out(torch::relu(back(z))), mu, log_var};", "}"]]),
                    "torch::Tensor sample(torch::Tensor mu, torch::Tensor log_var) {",
                    *s.choices.pick("train_only", [["auto eps = torch::randn_like(log_var);", "return mu + eps * torch::exp(0.5 * log_var);"],
                                                   ["if (!is_training()) {", "return mu;", "}", "auto eps = torch::randn_like(mu);", "return eps.mul((log_var / 2).exp()).add_(mu);"]]),
                    "}", "torch::nn::Linear hidden, mean, spread, back, out;", "};", "TORCH_MODULE(VAE);"])
    s.setup.append("VAE vae;")
    if s.real:
        s.setup.append("vae->to(torch::kDouble);")
    s.setup.append("torch::optim::Adam optimizer(vae->parameters(), 1e-2);")
    s.batches(size, size, "copies")
    vector = any("std::vector<torch::Tensor> forward" in line for line in s.types[0])
    take = ["auto result = vae->forward(x);", "auto rebuilt = result[0], mu = result[1], log_var = result[2];"] if vector else \
        s.choices.pick("unpack", [["auto [rebuilt, mu, log_var] = vae->forward(x);"],
                                  ["torch::Tensor rebuilt, mu, log_var;", "std::tie(rebuilt, mu, log_var) = vae(x);"]])
    body = [*take, "auto rebuilding = " + s.choices.pick("reduction", ["torch::mse_loss(rebuilt, x, torch::Reduction::Sum)", "torch::nn::functional::mse_loss(rebuilt, x, torch::nn::functional::MSELossFuncOptions(torch::kSum))",
                                                                      "(rebuilt - x).pow(2).sum(1).mean()"]) + ";",
            "auto divergence = -0.5 * torch::sum(1 + log_var - mu.pow(2) - log_var.exp());", "auto loss = rebuilding + divergence / x.size(0);",
            "optimizer.zero_grad();", "loss.backward();", "optimizer.step();", "total += loss.item<double>();",
            *s.say("rebuilding ", number("rebuilding.item<double>()"), " divergence ", number("divergence.item<double>()"))]
    s.setup.append("double total = 0;")
    s.epochs(body, ["{", "torch::NoGradGuard no_grad;", "vae->eval();", f"auto shown = vae->forward(torch::ones({{3, {size}}}{s.dtype}));",
                    *s.say("shown ", number(("shown[0]" if vector else "std::get<0>(shown)") + ".sum().item<double>()")), "vae->train();", "}",
                    *s.say("average ", number("total / train_rows"))])


def stages(s):
    size = s.choices.integer("features", 3, 6)
    encoder = s.model("encoder", "Encoder", size, 4)
    decoder = s.model("decoder", "Decoder", 4, size, norms=False)
    head = s.model("classifier", "Head", 4, 3, norms=False)
    s.batches(size, 3, "classes")
    both = s.choices.pick("joined", [["std::vector<torch::Tensor> joined = " + f"{s.dot(encoder)}parameters();",
                                      f"auto more = {s.dot(decoder)}parameters();", "joined.insert(joined.end(), more.begin(), more.end());"],
                                     ["std::vector<torch::Tensor> joined;", f"for (auto& p : {s.dot(encoder)}parameters()) {{", "joined.push_back(p);", "}",
                                      f"for (auto& p : {s.dot(decoder)}parameters()) {{", "joined.push_back(p);", "}"]])
    s.setup += both + ["torch::optim::Adam pretraining(joined, 1e-2);"]
    late = s.choices.flag("late_optimizer", 0.5)
    second = f"torch::optim::SGD optimizer({s.dot(head)}parameters(), 0.05);"
    if not late:
        s.setup.append(second)
    s.epochs([f"auto code = {s.call(encoder, 'x')};", f"auto rebuilt = {s.call(decoder, 'code')};", "auto loss = torch::mse_loss(rebuilt, x);", "pretraining.zero_grad();",
              "loss.backward();", "pretraining.step();", *s.say("rebuilding ", number("loss.item<double>()"))], [], 2)
    freeze = s.choices.pick("freeze", ["detach", "requires_grad", "guard"])
    if freeze == "requires_grad":
        s.loop += [f"for (auto& p : {s.dot(encoder)}parameters()) {{", s.choices.pick("freezing", ["p.set_requires_grad(false);", "p.requires_grad_(false);"]), "}"]
    if s.choices.flag("encoder_eval", 0.5):
        s.loop.append(f"{s.dot(encoder)}eval();")
    if late:
        s.loop.append(second)
    code = {"detach": [f"auto code = {s.call(encoder, 'x')}.detach();"], "requires_grad": [f"auto code = {s.call(encoder, 'x')};"],
            "guard": ["torch::Tensor code;", "{", "torch::NoGradGuard no_grad;", f"code = {s.call(encoder, 'x')};", "}"]}[freeze]
    s.epochs([*code, f"auto logits = {s.call(head, 'code')};", "auto loss = torch::nn::functional::cross_entropy(logits, y);", "optimizer.zero_grad();", "loss.backward();",
              "optimizer.step();", *s.say("classifying ", number("loss.item<double>()"))], s.weights(), 2)


def two_losses(s):
    size = s.choices.integer("features", 3, 6)
    trunk = s.model("trunk", "Trunk", size, 5)
    left = s.model("left", "LeftHead", 5, 2, norms=False)
    right = s.model("right", "RightHead", 5, 1, norms=False)
    one = s.choices.flag("one_optimizer", 0.3)
    if one:
        s.setup += ["std::vector<torch::Tensor> all_parameters;", *[line for m in (trunk, left, right) for line in
                    (f"for (const auto& p : {s.dot(m)}parameters()) {{", "all_parameters.push_back(p);", "}")], "torch::optim::Adam optimizer(all_parameters, 5e-3);"]
        names = ["optimizer"]
    else:
        for name, m in (("trunk_optimizer", trunk), ("left_optimizer", left), ("right_optimizer", right)):
            s.optimizer(name, m)
        names = ["trunk_optimizer", "left_optimizer", "right_optimizer"]
    s.batches(size, 2, "classes")
    zero, step = [f"{n}.zero_grad();" for n in names], [f"{n}.step();" for n in names]
    body = [*zero, f"auto shared = {s.call(trunk, 'x')};", f"auto first = torch::nn::functional::cross_entropy({s.call(left, 'shared')}, y);",
            f"auto second = torch::mse_loss({s.call(right, 'shared')}, x.sum(1, true));"]
    body += s.choices.pick("backwards", [["auto loss = first + 0.5 * second;", "loss.backward();"], ["first.backward({}, true);", "second.backward();"],
                                         ["torch::autograd::backward({first, second}, {});"] if False else ["(first + second).backward();"]])
    body += [*step, *s.say("first ", number("first.item<double>()"), " second ", number("second.item<double>()"))]
    s.epochs(body, s.weights())


def slopes(s):
    size = s.choices.integer("features", 2, 3)
    net = s.model("net", "Field", size, 1, norms=False)
    s.optimizer("optimizer", net)
    s.batches(size, 1, "values")
    body = ["auto points = x.clone().detach().requires_grad_(true);" if s.choices.flag("cloned") else "auto points = x.detach().clone().set_requires_grad(true);",
            f"auto u = {s.call(net, 'points')};",
            s.choices.pick("gradient", ["auto du = torch::autograd::grad({u}, {points}, {torch::ones_like(u)}, true, true)[0];",
                                        "auto du = torch::autograd::grad({u.sum()}, {points}, {}, /*retain_graph=*/true, /*create_graph=*/true)[0];"]),
            "auto residual = du.sum(1, true) - torch::cos(points.sum(1, true));", "auto loss = residual.pow(2).mean() + torch::mse_loss(u, y);",
            "optimizer.zero_grad();", "loss.backward();", "optimizer.step();", *s.say("residual ", number("residual.abs().max().item<double>()"), " loss ", number("loss.item<double>()"))]
    s.epochs(body)


def cells(s):
    """A recurrent cell called step by step, its state written into the loop."""
    steps, width = s.choices.integer("steps", 3, 5), s.choices.integer("width", 4, 6)
    kind = s.choices.pick("cell", ["GRUCell", "LSTMCell", "RNNCell"])
    s.types.append(["struct StepperImpl : torch::nn::Module {", "StepperImpl()", f": cell(register_module(\"cell\", torch::nn::{kind}(1, {width}))),",
                    f"  out(register_module(\"out\", torch::nn::Linear({width}, 1))) {{}}", "torch::Tensor forward(torch::Tensor x) {",
                    f"auto h = torch::zeros({{x.size(0), {width}}}{s.dtype});",
                    *([f"auto c = torch::zeros({{x.size(0), {width}}}{s.dtype});"] if kind == "LSTMCell" else []),
                    "std::vector<torch::Tensor> outputs;" if s.choices.flag("collect") else "torch::Tensor last;",
                    "for (int64_t t = 0; t < x.size(1); ++t) {", "auto step = x.select(1, t).unsqueeze(1);",
                    "std::tie(h, c) = cell->forward(step, std::make_tuple(h, c));" if kind == "LSTMCell" else "h = cell->forward(step, h);",
                    "@keep", "}", "@end", "}", f"torch::nn::{kind} cell;", "torch::nn::Linear out;", "};", "TORCH_MODULE(Stepper);"])
    lines = s.types[-1]
    collect = "std::vector<torch::Tensor> outputs;" in lines
    lines[lines.index("@keep")] = "outputs.push_back(out->forward(h));" if collect else "last = h;"
    lines[lines.index("@end")] = s.choices.pick("stacked", ["return torch::stack(outputs, 1).squeeze(-1);", "return torch::cat(outputs, 1);"]) if collect \
        else f"return out->forward(last).expand({{-1, x.size(1)}});"
    s.setup += ["Stepper model;"] + (["model->to(torch::kDouble);"] if s.real else []) + ["torch::optim::Adam optimizer(model->parameters(), 1e-2);"]
    s.batches(steps, steps, "copies")
    s.epochs([s.choices.pick("call", ["auto output = model->forward(x);", "auto output = model(x);"]), "auto loss = torch::mse_loss(output, y.cumsum(1));", "optimizer.zero_grad();", "loss.backward();",
              "optimizer.step();", *s.say("loss ", number("loss.item<double>()"), " last ", number("output[0][-1].item<double>()"))])


def memory(s):
    """Transitions kept in a buffer on the host, and batches drawn from it."""
    size = s.choices.integer("features", 2, 4)
    net = s.model("model", "Predictor", size, 1, norms=False)
    s.optimizer("optimizer", net)
    kind = s.choices.pick("buffer", ["struct", "tuple", "deque"])
    item = {"struct": "Transition", "tuple": "std::tuple<torch::Tensor, double>", "deque": "Transition"}[kind]
    if item == "Transition":
        s.types.append(["struct Transition {", "torch::Tensor state;", "double reward;", "};"])
    container = "std::deque" if kind == "deque" else "std::vector"
    s.setup.append(f"{container}<{item}> buffer;")
    s.sizes = [("batch_size", s.choices.integer("batch", 2, 9))]
    state, reward = ("std::get<0>(buffer[i])", "std::get<1>(buffer[i])") if kind == "tuple" else ("buffer[i].state", "buffer[i].reward")
    made = "{state, reward}" if kind != "tuple" else "std::make_tuple(state, reward)"
    s.setup.append(f"torch::Tensor state = torch::randn({{{size}}}{s.dtype});")
    s.loop = ["for (int step = 0; step < 14; ++step) {",
              "double value;", "{", "torch::NoGradGuard no_grad;", f"value = {s.call(net, 'state.unsqueeze(0)')}.item<double>();", "}",
              "double reward = state.sum().item<double>() > 0 ? 1.0 : -1.0;", f"buffer.push_back({made});",
              f"state = 0.9 * state + (value > 0 ? 0.3 : -0.3) + 0.1 * torch::randn({{{size}}}{s.dtype});",
              "if (static_cast<int64_t>(buffer.size()) < batch_size) {", "continue;", "}",
              "std::vector<torch::Tensor> states;", "std::vector<double> rewards;", "for (int64_t k = 0; k < batch_size; ++k) {",
              s.choices.pick("drawn", ["auto i = torch::randint(0, static_cast<int64_t>(buffer.size()), {1}).item<int64_t>();",
                                       "size_t i = engine() % buffer.size();", "size_t i = (step * 7 + k * 3) % buffer.size();"]),
              f"states.push_back({state});", f"rewards.push_back({reward});", "}", "auto x = torch::stack(states);",
              "auto y = torch::tensor(rewards, torch::kDouble).unsqueeze(1);" if s.choices.flag("tensor") else
              "auto y = torch::from_blob(rewards.data(), {batch_size, 1}, torch::kDouble).clone();",
              f"auto loss = torch::mse_loss({s.call(net, 'x')}, y);", "optimizer.zero_grad();", "loss.backward();", "optimizer.step();",
              *s.say("step ", ("count", "step"), " value ", number("value"), " loss ", number("loss.item<double>()")), "}"]
    if any("engine()" in str(line) for line in s.loop):
        s.setup.append("std::mt19937 engine(5);")


def carried(s):
    """A recurrent state that goes on over the batches of an epoch."""
    size, width, rows, part = (s.choices.integer(name, low, high) for name, low, high in
                               (("features", 2, 3), ("width", 4, 6), ("streams", 2, 7), ("part", 3, 4)))
    gru = s.choices.flag("gru")
    kind = "GRU" if gru else "LSTM"
    s.setup += [f"torch::nn::{kind} rnn(torch::nn::{kind}Options({size}, {width}).batch_first(true));", f"torch::nn::Linear head({width}, 1);",
                "rnn->to(torch::kDouble);", "head->to(torch::kDouble);", "auto parameters = rnn->parameters();",
                "for (auto& p : head->parameters()) {", "parameters.push_back(p);", "}", "torch::optim::Adam optimizer(parameters, 1e-2);",
                f"auto text = torch::randn({{{rows}, {4 * part + 1}, {size}}}, torch::kDouble);"]
    zeros = f"torch::zeros({{1, {rows}, {width}}}, torch::kDouble)"
    detach = s.choices.pick("detach", [["h = h.detach();", "c = c.detach();"], ["h.detach_();", "c.detach_();"]])
    if gru:
        call = s.choices.pick("gru_call", [["torch::Tensor out;", "std::tie(out, h) = rnn->forward(x, h);"],
                                           ["auto result = rnn(x, h);", "auto out = std::get<0>(result);", "h = std::get<1>(result);"]])
    else:
        call = s.choices.pick("lstm_call", [["auto [out, state] = rnn->forward(x, std::make_tuple(h, c));", "std::tie(h, c) = state;"],
                                            ["torch::Tensor out;", "std::forward_as_tuple(out, std::tie(h, c)) = rnn->forward(x, std::make_tuple(h, c));"]])
    s.loop = ["for (int epoch = 0; epoch < 2; ++epoch) {", f"torch::Tensor h = {zeros};", *([] if gru else [f"torch::Tensor c = {zeros};"]),
              f"for (int64_t at = 0; at + {part} < text.size(1); at += {part}) {{", f"auto x = text.slice(1, at, at + {part});",
              f"auto y = text.slice(1, at + 1, at + {part} + 1).sum(2, true);", *(detach[:1] if gru else detach), *call,
              "auto loss = torch::mse_loss(head->forward(out), y);", "optimizer.zero_grad();", "loss.backward();", "optimizer.step();",
              *s.say("loss ", number("loss.item<double>()")), "}",
              *s.say("state ", number("h.abs().sum().item<double>()")), "}"]


def ensemble(s):
    """Several models in a vector, each with an optimizer of its own."""
    size = s.choices.integer("features", 2, 5)
    many = s.choices.integer("many", 2, 3)
    net = s.model("member", "Member", size, 1, norms=False)
    if net.is_sequential:
        return by_hand(s)
    s.models.clear()
    at = s.setup.index(net.var.local)
    del s.setup[at:]
    if not net.var.pointer:
        element, made = "std::shared_ptr<Member>", "std::make_shared<Member>()"
    elif net.callable:
        element, made = "Member", "Member()"
    else:
        element, made = "std::shared_ptr<Member>", "std::make_shared<Member>()"
    s.setup += [f"std::vector<{element}> members;", "std::vector<std::unique_ptr<torch::optim::Optimizer>> optimizers;", f"for (int i = 0; i < {many}; ++i) {{",
                *s.choices.pick("push", [[f"members.push_back({made});"], [f"members.emplace_back({made});"]]),
                *(["members.back()->to(torch::kDouble);"]),
                "optimizers.push_back(std::make_unique<torch::optim::Adam>(members[i]->parameters(), 1e-2));", "}"]
    s.batches(size, 1, "values")
    loop = s.choices.pick("members_loop", ["index", "range"])
    if loop == "index":
        body = ["double together = 0;", "for (size_t m = 0; m < members.size(); ++m) {", "optimizers[m]->zero_grad();",
                "auto loss = torch::mse_loss(members[m]->forward(x), y);", "loss.backward();", "optimizers[m]->step();", "together += loss.item<double>();", "}"]
    else:
        body = ["double together = 0;", "size_t m = 0;", "for (auto& member : members) {", "auto& optimizer = *optimizers[m++];",
                "auto loss = torch::mse_loss(member->forward(x), y);", "optimizer.zero_grad();", "loss.backward();", "optimizer.step();",
                "together += loss.item<double>();", "}"]
    s.epochs(body + s.say("together ", number("together")))


def folds(s):
    """A new model and optimizer for each fold; what is tested is cut out of one set."""
    size = s.choices.integer("features", 3, 5)
    rows, parts = s.choices.integer("rows", 12, 20), s.choices.integer("folds", 2, 3)
    net = s.model("model", "Net", size, 3, norms=False)
    made = list(s.setup)
    s.setup = [f"auto x_all = torch::randn({{{rows}, {size}}}, torch::kDouble);", "auto y_all = (x_all.sum(1) > 0).to(torch::kLong) + (x_all.select(1, 0) > 1).to(torch::kLong);",
               f"const int64_t fold_size = {rows} / {parts};"]
    if s.choices.flag("scores"):
        s.setup.append("std::vector<double> scores;")
        keep, end = ["scores.push_back(accuracy);"], s.say("mean accuracy ", number("std::accumulate(scores.begin(), scores.end(), 0.0) / scores.size()"))
    else:
        s.setup.append("double scores = 0;")
        keep, end = ["scores += accuracy;"], s.say("mean accuracy ", number(f"scores / {parts}.0"))
    cut = s.choices.pick("cut", [
        [f"auto x_train = torch::cat({{x_all.slice(0, 0, first), x_all.slice(0, last, {rows})}});", f"auto y_train = torch::cat({{y_all.slice(0, 0, first), y_all.slice(0, last, {rows})}});"],
        [f"auto kept = torch::cat({{torch::arange(0, first), torch::arange(last, {rows})}}).to(torch::kLong);", "auto x_train = x_all.index_select(0, kept);",
         "auto y_train = y_all.index({kept});"]])
    # The model is made within the fold: its statements move there.
    s.loop = [f"for (int64_t fold = 0; fold < {parts}; ++fold) {{", "const int64_t first = fold * fold_size, last = first + fold_size;", *cut,
              "auto x_test = x_all.slice(0, first, last);", "auto y_test = y_all.slice(0, first, last);", *made, f"{s.dot(net)}to(torch::kDouble);",
              f"torch::optim::Adam optimizer({s.dot(net)}parameters(), 2e-2);", "for (int step = 0; step < 4; ++step) {",
              f"auto loss = torch::nn::functional::cross_entropy({s.call(net, 'x_train')}, y_train);", "optimizer.zero_grad();", "loss.backward();", "optimizer.step();",
              *s.say("fold ", ("count", "fold"), " loss ", number("loss.item<double>()")), "}", "torch::NoGradGuard no_grad;", f"{s.dot(net)}eval();",
              f"double accuracy = {s.call(net, 'x_test')}.argmax(1).eq(y_test).to(torch::kDouble).mean().item<double>();",
              *s.say("accuracy ", number("accuracy")), *keep, "}", *end, "// weights_sum"]
    s.models.clear()


SUBJECTS = [carried, ensemble, folds, gan, by_hand, closure, policy, target_network, contrastive, variational, stages, two_losses, slopes, cells, memory]


def make_special(choices, outputs, real):
    special = Special(choices, outputs, real)
    subject = choices.pick("subject", [s.__name__ for s in SUBJECTS])
    next(s for s in SUBJECTS if s.__name__ == subject)(special)
    if special.models:
        if "weights_sum" not in str(special.loop):
            special.loop += special.weights()
    return special
