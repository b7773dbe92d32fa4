#pragma once

#include <accel/tracking/registry.h>

#include <memory>

namespace accel {

/// Writes TensorBoard event files into `logging_dir/project_name`. TensorBoard
/// must not be installed for that.
///
/// Numbers become scalars (32 bits, as TensorBoard has them), texts become
/// entries of the Text tab. The configuration is written as a table under
/// "hparams" in the Text tab, and as `hparams.yml` in a folder named by the
/// time. Values without a step are recorded at step 0. Each call is written out
/// before it returns.
class ACCEL_API TensorBoardTracker : public GeneralTracker {
 public:
  /// No options.
  explicit TensorBoardTracker(const TrackerArguments& arguments);
  ~TensorBoardTracker() override;

  std::string name() const override {
    return "tensorboard";
  }
  bool requires_logging_directory() const override {
    return true;
  }
  void store_init_configuration(const LogValues& values) override;
  void log(const LogValues& values, std::optional<int64_t> step = std::nullopt)
      override;
  void finish() override;

  /// Writes one point of the curve `tag`.
  void add_scalar(const std::string& tag, double value, int64_t step);
  /// Writes a text, which TensorBoard shows as Markdown.
  void add_text(const std::string& tag, const std::string& text, int64_t step);

  /// The event file.
  const std::string& path() const;

 private:
  struct Writer;
  std::string directory_;
  std::unique_ptr<Writer> writer_;
};

} // namespace accel
