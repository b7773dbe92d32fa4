"""Printing in the forms of people's programs. A message is a list of texts and of
("number", expression) or ("count", expression)."""


class Outputs:
    """Message forms of one program: one or two of them, as one person would use."""

    FORMS = ["cout_endl", "cout_newline", "printf", "stream", "to_string", "fprintf", "helper", "mixed"]

    def __init__(self, choices):
        self.choices = choices
        self.form = choices.pick("print", self.FORMS, [5, 4, 3, 1, 1, 1, 1, 1])
        self.fixed = choices.flag("fixed", 0.4)
        self.log = choices.flag("log_file", 0.15)
        self.errors = choices.flag("errors", 0.1)
        self.includes = {"iostream", "iomanip", "cstdio", "sstream", "string", "fstream"}
        self.types = []
        if self.form == "helper":
            self.types = ["void report(const std::string& what, double value) {",
                          "std::cout << what << \": \" << value << std::endl;", "}"]
        self.count = 0

    def start(self):
        """Statements at the top of main."""
        lines = ["std::cout << std::fixed << std::setprecision(12);" if self.fixed else "std::cout << std::setprecision(12);"]
        if self.log:
            lines += ['std::ofstream log("training.log");', "log << std::setprecision(12);"]
        if self.errors:
            lines += ["std::cerr << std::setprecision(12);"]
        return lines

    def logged(self, parts):
        """A line for the log file and the standard error, where there are such; only in main."""
        lines = []
        if self.log:
            lines.append("log << " + " << ".join(self._streamed(parts)) + " << '\\n';")
        if self.errors:
            lines.append("std::cerr << " + " << ".join(self._streamed(parts)) + " << std::endl;")
        return lines

    @staticmethod
    def _streamed(parts):
        return [f'"{part}"' if isinstance(part, str) else (f"({part[1]})" if "?" in part[1] else part[1]) for part in parts]

    def say(self, parts):
        self.count += 1
        form = self.form
        if form == "mixed":
            form = self.choices.pick(f"print{self.count}", self.FORMS[:6])
        if form == "helper":
            if len(parts) == 2 and parts[1][0] == "number":
                return [f'report("{parts[0].strip(" =:")}", {parts[1][1]});']
            form = "cout_endl"
        if form in ("cout_endl", "cout_newline"):
            end = "std::endl" if form == "cout_endl" else "'\\n'"
            return ["std::cout << " + " << ".join(self._streamed(parts)) + f" << {end};"]
        if form in ("printf", "fprintf"):
            text, arguments = "", []
            for part in parts:
                if isinstance(part, str):
                    text += part.replace("%", "%%")
                elif part[0] == "number":
                    text += "%.12g" if not self.fixed else "%.10f"
                    arguments.append(part[1])
                else:
                    text += "%ld"
                    arguments.append(f"static_cast<long>({part[1]})")
            call = {"printf": ("std::printf(" if self.count % 2 else "printf("), "fprintf": "fprintf(stdout, "}[form]
            return [f'{call}"{text}\\n"' + "".join(f", {argument}" for argument in arguments) + ");"]
        if form == "stream":
            name = f"text{self.count}"
            return [f"std::ostringstream {name};", f"{name} << std::setprecision(12) << " + " << ".join(self._streamed(parts)) + ";",
                    f"std::cout << {name}.str() << std::endl;"]
        pieces = [f'"{part}"' if isinstance(part, str) else f"std::to_string({part[1]})" for part in parts]
        if not isinstance(parts[0], str):
            pieces.insert(0, 'std::string()')
        elif len(parts) > 1 and not isinstance(parts[1], str) or len(parts) == 1:
            pieces[0] = f"std::string({pieces[0]})"
        return ["std::cout << " + " + ".join(pieces) + " << std::endl;"]
