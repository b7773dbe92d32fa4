#pragma once

#include <accel/detail/preparable.h>
#include <accel/export.h>

#include <c10/util/Exception.h>
#include <torch/serialize.h>

#include <cstdio>
#include <filesystem>
#include <memory>
#include <ostream>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace accel {

/// `Accelerator::cout` for what is made before `main`, when there is no Accelerator:
/// which process this is says the environment that the launcher has set. Any process
/// may call it at any time.
///
///     static std::ostream& log = accel::main_process_cout();
ACCEL_API std::ostream& main_process_cout();
/// As `main_process_cout`, with `std::cerr`.
ACCEL_API std::ostream& main_process_cerr();
/// As `main_process_cout`, with C's `stdout`. Throws `c10::Error` where the null device
/// cannot be opened.
ACCEL_API std::FILE* main_process_stdout();

} // namespace accel

namespace accel::detail {

/// What a program prints, writes and saves, by process 0 only: members of
/// `Accelerator`. All processes run the same code: arguments are evaluated
/// everywhere, so that what is written may be computed together.
class ACCEL_API MainProcessOutput {
 public:
  /// Writes the arguments with spaces between them and ends the line.
  template <typename... Args>
  void print(const Args&... args) {
    auto& out = cout();
    [[maybe_unused]] const char* separator = "";
    ((out << separator << args, separator = " "), ...);
    out << std::endl;
  }

  /// `std::printf`; returns what it returns on process 0, everywhere.
  int printf(const char* format, ...) __attribute__((format(printf, 2, 3)));

  /// `cout` and `cerr` are those of `std` on process 0; elsewhere streams that
  /// take everything, keep manipulators, and write nothing.
  std::ostream& cout();
  std::ostream& cerr();

  /// The same for C's functions: `stdout` on process 0, elsewhere a file that
  /// takes everything. Throws where the null device cannot be opened.
  ///
  ///     fmt::print(accelerator.c_stdout(), "{}", loss.item<float>());
  std::FILE* c_stdout() const;
  /// As `c_stdout`, with `stderr`.
  std::FILE* c_stderr() const;

  /// `torch::save` on process 0, or on the first process of each host (option
  /// `save_on_each_node`). Every process must call it. The others do not wait,
  /// but where `readable_path` has been asked for the file: then all wait until
  /// all have come here. A model, an optimizer or tensors that are divided between
  /// the processes are put together first, which is collective. What is saved to
  /// a stream that is no file's (`std::stringstream`) is written on all processes,
  /// since each has its own. Throws `c10::Error` where it cannot be written, on the
  /// processes that write: what is to be told on all is `save_state` and `save_model`.
  /// Where the disk becomes full meanwhile, LibTorch itself ends the process
  /// ("basic_ios::clear: iostream error", out of a destructor); those two throw.
  template <typename Value, typename... Args>
  void save(const Value& value, Args&&... args) {
    wait_for_readers(args...);
    const bool writes = writes_to(args...);
    if constexpr (
        std::is_same_v<Value, at::Tensor> ||
        std::is_same_v<Value, std::vector<at::Tensor>>) {
      const auto whole = whole_tensors(value);
      if (writes) {
        write_named([&] { torch::save(whole, args...); }, args...);
      }
      return;
    }
    std::shared_ptr<void> whole;
    if constexpr (is_model_or_optimizer<Value>()) {
      visit_preparable(
          value,
          [&](const torch::nn::Module* m) {
            whole = make_whole(m, nullptr, writes);
          },
          [&](const torch::optim::Optimizer* o) {
            whole = make_whole(nullptr, o, writes);
          },
          [](const torch::optim::LRScheduler*) {});
    }
    if (writes) {
      write_named([&] { torch::save(value, args...); }, args...);
    }
  }

  /// The same with `archive.save_to(args...)`, of an archive that the program has
  /// written tensors, models or other archives into. It stays as it is.
  ///
  ///     torch::serialize::OutputArchive archive;
  ///     model->save(archive);
  ///     accelerator.save(archive, "model.pt");
  template <typename... Args>
  void save(torch::serialize::OutputArchive& archive, Args&&... args) {
    wait_for_readers(args...);
    const bool writes = writes_to(args...);
    const auto whole = make_whole(archive, writes);
    if (writes) {
      write_named([&] { archive.save_to(args...); }, args...);
    }
  }

  /// The same of tensors in a list: `save({mean, variance}, "statistics.pt")`.
  template <typename... Args>
  void save(const std::vector<at::Tensor>& tensors, Args&&... args) {
    save<std::vector<at::Tensor>>(tensors, std::forward<Args>(args)...);
  }

  /// Where this process writes a file that one process should write: the path
  /// on process 0, the null device elsewhere. Every process must call it: where
  /// `readable_path` has been asked for the file, all wait until all have come
  /// here.
  ///
  ///     std::ofstream log(accelerator.main_process_path("loss.csv"));
  const char* main_process_path(const char* path) const;
  std::string main_process_path(const std::string& path) const;
  std::filesystem::path main_process_path(
      const std::filesystem::path& path) const;

  /// Where this process reads a file, or asks whether it is there, that the
  /// program may have written before through `main_process_path` or `save`, or
  /// may write next: the path; or that of a folder which it lists, with such files
  /// in it. For a file that it has written all processes wait
  /// until process 0 has come here, so that each reads what one device would
  /// read; a stream that is still open, and not flushed, is as unfinished as
  /// there. One that it writes next is written when all have come to that.
  /// Collective; but on another thread than the one that opened the file for writing
  /// each process waits only until process 0 has come here, too: every process must
  /// have such a thread. Throws `c10::Error` after the timeout.
  ///
  ///     std::ifstream words(accelerator.readable_path("words.txt"));
  const char* readable_path(const char* path) const;
  std::string readable_path(const std::string& path) const;
  std::filesystem::path readable_path(const std::filesystem::path& path) const;

  /// A command for `popen(command, "w")`, of which process 0 alone should be
  /// told something: the command on process 0, elsewhere one that takes
  /// everything and does nothing.
  ///
  ///     FILE* plot = popen(accelerator.main_process_command("gnuplot"), "w");
  const char* main_process_command(const char* command) const;

 private:
  template <typename To, typename... Rest>
  static void wait_for_readers(const To& to, const Rest&...) {
    if constexpr (std::is_convertible_v<const To&, std::string>) {
      wait_for_readers_of(to);
    }
  }
  /// A file is about to be written: until all who asked for it have come here.
  static void wait_for_readers_of(const std::string& path);
  template <typename To, typename... Rest>
  static bool writes_to(const To& to, const Rest&...) {
    if constexpr (std::is_base_of_v<std::ostream, To>) {
      return saves() || is_own(to);
    } else {
      return saves();
    }
  }
  /// Calls `write`, whose errors are to name the file.
  template <typename Write, typename To, typename... Rest>
  static void write_named(const Write& write, const To& to, const Rest&...) {
    if constexpr (std::is_convertible_v<const To&, std::string>) {
      try {
        write();
      } catch (const c10::Error& error) {
        throw_not_written(to, error);
      }
    } else {
      write();
    }
  }
  [[noreturn]] static void throw_not_written(
      const std::string& path, const c10::Error& error);
  /// Whether this process saves.
  static bool saves();
  /// Whether each process has a stream like this for itself: all but files.
  static bool is_own(const std::ostream& stream);
  static at::Tensor whole_tensors(const at::Tensor& tensor);
  static std::vector<at::Tensor> whole_tensors(
      const std::vector<at::Tensor>& tensors);
  /// While what it returns lives, a model or an optimizer is whole here, at least
  /// where it is saved.
  static std::shared_ptr<void> make_whole(
      const torch::nn::Module* model,
      const torch::optim::Optimizer* optimizer,
      bool writes);
  static std::shared_ptr<void> make_whole(
      torch::serialize::OutputArchive& archive, bool writes);
};

} // namespace accel::detail
