// The evaluator of a development-mode LLVM that has no TFLite.
//
// LLVM's development mode (-enable-ml-inliner=development and its register
// allocation siblings) reaches every learned model through one class,
// llvm::TFModelEvaluator, declared in llvm/Analysis/Utils/TFUtils.h. LLVM's own
// definition of it needs TFLite; this file is another definition, which needs
// nothing but LLVM. LLVM constructs the class in two places only:
//
//  1. InlineSizeEstimatorAnalysis, when -ml-inliner-ir2native-model=PATH is
//     given: one int32 input tensor (the IR2Native features of a function), one
//     float output (the estimate of its native size). If PATH is a folder, the
//     shared object PATH/policy.so of a model of native size estimates. Else no
//     model is loaded: every input is written to the file PATH, and the estimate
//     is a constant or the number of the row just written.
//
//  2. ModelUnderTrainingRunner, when a policy is given
//     (-ml-inliner-model-under-training=DIR, -regalloc-model=DIR,
//     -regalloc-priority-model=DIR): the policy is the shared object
//     DIR/policy.so, whose functions policy.h of `mlgo-corpus policy compile`
//     declares. LLVM itself reads DIR/output_spec.json. Without a policy LLVM
//     never gets here, and the training logs hold the decisions of the default
//     heuristics.
//
// What FILE holds (text, one line per evaluation, in the order of evaluation):
//
//   {"format":"ir2native-vectors","version":1,"llvm":"19.1.7","type":"int32","width":214}
//   123,4,7,0,...
//   ...
//
// LLVM does not tell an evaluator which function a vector belongs to. Rows and
// names are matched outside of this file, in either of two ways:
//
//  - -ml-inliner-ir2native-number-rows makes the estimate the number of the row,
//    from 0. The pass print<inliner-size-estimator> prints the estimate next to
//    the function's name on stderr, hence the row, even when LLVM answers from its
//    analysis cache and evaluates nothing. (The estimate is a float: exact up to
//    2^24 rows. In a training log the score, a difference of estimates, is then
//    meaningless; without the flag it is 0.)
//  - -debug-pass-manager (clang -cc1: -fdebug-pass-manager) prints "Running
//    analysis: InlineSizeEstimatorAnalysis on NAME" once per row, in this order.
//
// The estimate never reaches a decision: LLVM only logs it as the score.

#include "llvm/Analysis/Utils/TFUtils.h"

#ifndef LLVM_HAVE_TFLITE
#error "compile with -DLLVM_HAVE_TFLITE, as the rest of development mode"
#endif

#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/Twine.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/ErrorHandling.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/raw_ostream.h"

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <dlfcn.h>

using namespace llvm;

static cl::opt<bool> NumberRows(
    "ml-inliner-ir2native-number-rows", cl::Hidden, cl::init(false),
    cl::desc("Let the native size estimate be the number of the row that "
             "-ml-inliner-ir2native-model=FILE received, so that "
             "print<inliner-size-estimator> names the row of each function."));

namespace llvm {

/// What an evaluation answers: where its output tensors lie. The evaluator owns
/// them; they are overwritten by its next evaluation.
class EvaluationResultImpl {
public:
  explicit EvaluationResultImpl(std::vector<void *> Tensors)
      : Tensors(std::move(Tensors)) {}
  void *tensor(size_t Index) const { return Tensors.at(Index); }

private:
  const std::vector<void *> Tensors;
};

/// What stands behind a TFModelEvaluator: zeroed storage for the tensors, and a
/// function from inputs to outputs, which is what a kind of evaluator defines.
class TFModelEvaluatorImpl {
public:
  virtual ~TFModelEvaluatorImpl() = default;

  /// The evaluator for this path and these tensors; null, after a message, if
  /// there is none.
  static std::unique_ptr<TFModelEvaluatorImpl>
  create(StringRef Path, const std::vector<TensorSpec> &InputSpecs,
         const std::vector<TensorSpec> &OutputSpecs);

  /// Computes the outputs from the inputs; false when that is impossible.
  virtual bool run() = 0;

  void *input(size_t Index) { return Inputs.at(Index).data(); }

  std::unique_ptr<EvaluationResultImpl> outputs() {
    std::vector<void *> Pointers;
    for (Tensor &T : Outputs)
      Pointers.push_back(T.data());
    return std::make_unique<EvaluationResultImpl>(std::move(Pointers));
  }

protected:
  TFModelEvaluatorImpl(const std::vector<TensorSpec> &InputSpecs,
                       const std::vector<TensorSpec> &OutputSpecs) {
    for (const TensorSpec &Spec : InputSpecs)
      Inputs.emplace_back(Spec.getTotalTensorBufferSize());
    for (const TensorSpec &Spec : OutputSpecs)
      Outputs.emplace_back(Spec.getTotalTensorBufferSize());
  }

private:
  /// Bytes from operator new: aligned for every tensor element there is.
  using Tensor = std::vector<std::byte>;
  std::vector<Tensor> Inputs;
  std::vector<Tensor> Outputs;
};

} // namespace llvm

namespace {

/// A file of vectors. All evaluators of a process that name the same file share
/// it (a compiler may make several: one per module, in ThinLTO also several at
/// a time); another process that names it starts it anew.
class VectorFile {
public:
  static std::shared_ptr<VectorFile> open(StringRef Path, size_t Width) {
    static std::mutex Guard;
    static std::map<std::string, std::shared_ptr<VectorFile>> Opened;
    std::lock_guard<std::mutex> Lock(Guard);
    std::shared_ptr<VectorFile> &File = Opened[Path.str()];
    if (!File)
      File = std::make_shared<VectorFile>(Path, Width);
    return File;
  }

  VectorFile(StringRef Path, size_t Width)
      : Path(Path), OS(Path, Error, sys::fs::OF_None) {
    if (Error)
      fail("cannot write");
    OS << "{\"format\":\"ir2native-vectors\",\"version\":1,\"llvm\":\""
       << LLVM_VERSION_STRING << "\",\"type\":\"int32\",\"width\":" << Width
       << "}\n";
    flush();
  }

  /// Writes one row and returns its number. Each row is flushed: the file is
  /// whole even if the compiler crashes later.
  size_t append(const int32_t *Values, size_t Count) {
    std::lock_guard<std::mutex> Lock(Guard);
    ListSeparator Comma(",");
    for (size_t I = 0; I < Count; ++I)
      OS << Comma << Values[I];
    OS << '\n';
    flush();
    return Rows++;
  }

private:
  void flush() {
    OS.flush();
    if ((Error = OS.error())) {
      OS.clear_error(); // or the stream's destructor reports it once more
      fail("error while writing");
    }
  }

  [[noreturn]] void fail(const char *What) {
    report_fatal_error(Twine("-ml-inliner-ir2native-model: ") + What + " '" +
                           Path + "': " + Error.message(),
                       /*gen_crash_diag=*/false);
  }

  const std::string Path;
  std::error_code Error;
  raw_fd_ostream OS;
  std::mutex Guard;
  size_t Rows = 0;
};

/// The evaluator of -ml-inliner-ir2native-model=FILE: writes its input, answers
/// 0 or the number of the row.
class IR2NativeRecorder final : public TFModelEvaluatorImpl {
public:
  IR2NativeRecorder(StringRef Path, const std::vector<TensorSpec> &InputSpecs,
                    const std::vector<TensorSpec> &OutputSpecs)
      : TFModelEvaluatorImpl(InputSpecs, OutputSpecs),
        Width(InputSpecs.front().getElementCount()),
        File(VectorFile::open(Path, Width)),
        Estimate(static_cast<float *>(outputs()->tensor(0))) {}

  /// Whether these are the tensors of InlineSizeEstimatorAnalysis. No policy has
  /// a single input, so nothing else can be taken for it.
  static bool accepts(const std::vector<TensorSpec> &InputSpecs,
                      const std::vector<TensorSpec> &OutputSpecs) {
    return InputSpecs.size() == 1 && OutputSpecs.size() == 1 &&
           InputSpecs.front().isElementType<int32_t>() &&
           OutputSpecs.front().isElementType<float>() &&
           OutputSpecs.front().getElementCount() == 1;
  }

  bool run() override {
    size_t Row = File->append(static_cast<int32_t *>(input(0)), Width);
    *Estimate = NumberRows ? static_cast<float>(Row) : 0.0f;
    return true;
  }

private:
  const size_t Width;
  const std::shared_ptr<VectorFile> File;
  float *const Estimate;
};

/// The functions of a policy.so that are used here.
class PolicyLibrary {
public:
  /// Loads a policy; null, after a message, if there is none.
  static std::unique_ptr<PolicyLibrary> load(const std::string &Path) {
    // It stays loaded: LLVM makes an evaluator per module, or per function.
    void *Handle = dlopen(Path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!Handle) {
      const char *Why = dlerror();
      errs() << "error: cannot load the policy: " << (Why ? Why : Path) << '\n';
      return nullptr;
    }
    std::unique_ptr<PolicyLibrary> Found(new PolicyLibrary);
    int (*Abi)() = nullptr;
    bool IsWhole = find(Handle, "abi", Abi) &&
                   find(Handle, "name", Found->Name) &&
                   find(Handle, "feature_count", Found->FeatureCount) &&
                   find(Handle, "feature_name", Found->FeatureName) &&
                   find(Handle, "feature_type", Found->FeatureType) &&
                   find(Handle, "feature_size", Found->FeatureSize) &&
                   find(Handle, "decision_type", Found->DecisionType) &&
                   find(Handle, "decide", Found->Decide);
    if (!IsWhole || Abi() != 1) {
      errs() << "error: " << Path << ": expected a policy of ABI 1, as "
             << "'mlgo-corpus policy compile' writes it\n";
      return nullptr;
    }
    return Found;
  }

  const char *(*Name)() = nullptr;
  int (*FeatureCount)() = nullptr;
  const char *(*FeatureName)(int) = nullptr;
  const char *(*FeatureType)(int) = nullptr;
  long long (*FeatureSize)(int) = nullptr;
  const char *(*DecisionType)() = nullptr;
  void (*Decide)(const void *const *, void *) = nullptr;

private:
  template <class T>
  static bool find(void *Handle, const char *Name, T &Function) {
    std::string Symbol = std::string("mlgo_policy_") + Name;
    Function = reinterpret_cast<T>(dlsym(Handle, Symbol.c_str()));
    return Function != nullptr;
  }
};

/// The evaluator of a policy.so, of a policy or of a model of native size: finds
/// its features by name, and lets it decide. A model's one feature is the vector
/// of numbers that LLVM computes; LLVM's name of that says nothing.
class PolicyEvaluator final : public TFModelEvaluatorImpl {
public:
  /// The evaluator; null, after a message, if the policy needs what the compiler
  /// does not have.
  static std::unique_ptr<TFModelEvaluatorImpl>
  create(StringRef Folder, const std::vector<TensorSpec> &InputSpecs,
         const std::vector<TensorSpec> &OutputSpecs) {
    std::unique_ptr<PolicyLibrary> Library =
        PolicyLibrary::load((Folder + "/policy.so").str());
    if (!Library)
      return nullptr;
    std::unique_ptr<PolicyEvaluator> Made(new PolicyEvaluator(
        std::move(Library), InputSpecs, OutputSpecs));
    bool Fits = IR2NativeRecorder::accepts(InputSpecs, OutputSpecs)
                    ? Made->takes(InputSpecs.front())
                    : Made->bind(InputSpecs) && Made->fits(OutputSpecs);
    return Fits ? std::move(Made) : nullptr;
  }

  bool run() override {
    Library->Decide(Features.data(), Decision);
    return true;
  }

private:
  PolicyEvaluator(std::unique_ptr<PolicyLibrary> Library,
                  const std::vector<TensorSpec> &InputSpecs,
                  const std::vector<TensorSpec> &OutputSpecs)
      : TFModelEvaluatorImpl(InputSpecs, OutputSpecs),
        Library(std::move(Library)), Decision(outputs()->tensor(0)) {}

  /// Whether this is a model of native size that takes LLVM's vector.
  bool takes(const TensorSpec &Vector) {
    Features.push_back(input(0));
    return (Library->FeatureCount() == 1 &&
            StringRef(Library->FeatureName(0)) == "ir2native_vector" &&
            StringRef(Library->FeatureType(0)) == "int32_t" &&
            Library->FeatureSize(0) ==
                static_cast<long long>(Vector.getElementCount()) &&
            StringRef(Library->DecisionType()) == "float") ||
           refuse("does not take the " +
                  std::to_string(Vector.getElementCount()) +
                  " numbers of this compiler (ir2native_vector)");
  }

  /// Finds the buffer of each feature of the policy. LLVM names its inputs
  /// "action_FEATURE" (-ml-inliner-trained-model-feed-prefix), or plainly.
  bool bind(const std::vector<TensorSpec> &InputSpecs) {
    for (int I = 0, E = Library->FeatureCount(); I < E; ++I) {
      const std::string Name = Library->FeatureName(I);
      size_t Place = 0;
      for (; Place < InputSpecs.size(); ++Place)
        if (InputSpecs[Place].name() == Name ||
            InputSpecs[Place].name() == "action_" + Name)
          break;
      if (Place == InputSpecs.size())
        return refuse("needs the feature '" + Name +
                      "', which this compiler does not have");
      if (!isOf(InputSpecs[Place], Library->FeatureType(I),
                Library->FeatureSize(I)))
        return refuse("has another type or size for the feature '" + Name +
                      "' than this compiler");
      Features.push_back(input(Place));
    }
    return true;
  }

  bool fits(const std::vector<TensorSpec> &OutputSpecs) {
    if (OutputSpecs.size() != 1 ||
        !isOf(OutputSpecs.front(), Library->DecisionType(), 1))
      return refuse("does not make the one decision that output_spec.json says");
    return true;
  }

  static bool isOf(const TensorSpec &Spec, StringRef Type, long long Size) {
    bool HasType = Type == "float" ? Spec.isElementType<float>()
                                   : Spec.isElementType<int64_t>();
    return HasType && static_cast<long long>(Spec.getElementCount()) == Size;
  }

  bool refuse(const std::string &Why) {
    errs() << "error: the policy " << Library->Name() << ' ' << Why << '\n';
    return false;
  }

  const std::unique_ptr<PolicyLibrary> Library;
  std::vector<const void *> Features;
  void *const Decision;
};

} // namespace

std::unique_ptr<TFModelEvaluatorImpl>
TFModelEvaluatorImpl::create(StringRef Path,
                             const std::vector<TensorSpec> &InputSpecs,
                             const std::vector<TensorSpec> &OutputSpecs) {
  if (IR2NativeRecorder::accepts(InputSpecs, OutputSpecs) &&
      !sys::fs::is_directory(Path))
    return std::make_unique<IR2NativeRecorder>(Path, InputSpecs, OutputSpecs);
  return PolicyEvaluator::create(Path, InputSpecs, OutputSpecs);
}

// The class as TFUtils.h declares it: a thin shell around the above.

TFModelEvaluator::TFModelEvaluator(StringRef SavedModelPath,
                                   const std::vector<TensorSpec> &InputSpecs,
                                   const std::vector<TensorSpec> &OutputSpecs,
                                   const char * /*Tags*/)
    : Impl(TFModelEvaluatorImpl::create(SavedModelPath, InputSpecs,
                                        OutputSpecs)) {}

TFModelEvaluator::~TFModelEvaluator() = default;

void *TFModelEvaluator::getUntypedInput(size_t Index) {
  return Impl->input(Index);
}

std::optional<TFModelEvaluator::EvaluationResult> TFModelEvaluator::evaluate() {
  if (!Impl || !Impl->run()) {
    Impl.reset(); // the contract: a failed evaluation invalidates the object
    return std::nullopt;
  }
  return EvaluationResult(Impl->outputs());
}

using Result = TFModelEvaluator::EvaluationResult;

Result::EvaluationResult(std::unique_ptr<EvaluationResultImpl> Impl)
    : Impl(std::move(Impl)) {}
Result::EvaluationResult(Result &&Other) = default;
Result &Result::operator=(Result &&Other) = default;
Result::~EvaluationResult() = default;

void *Result::getUntypedTensorValue(size_t Index) {
  return Impl->tensor(Index);
}
const void *Result::getUntypedTensorValue(size_t Index) const {
  return Impl->tensor(Index);
}
