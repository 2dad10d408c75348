// A plugin for clang: LLVM's own inliner of live sessions, which says with each question who the caller and callee are.
//
//     clang++ -O1 -fPIC -shared -fno-rtti -std=c++17 -I$(llvm-config --includedir) advisor.cpp -o advisor.so
//     clang -fpass-plugin=./advisor.so ...
//
// Without a live session (-inliner-interactive-channel-base) the plugin leaves all decisions to LLVM's heuristic. In one,
// each question has LLVM's features as they are without the plugin, and behind them those of `Extra`, all int64:
//
//   callee_linkage, caller_linkage      0 local, 1 dropped if unused (inline functions and templates of C++), 2 weak,
//                                       3 external, 4 available_externally
//   callee_library, caller_library      1 for names of the C++ standard library, by their mangling
//   callee_kind                         1 constructor, 2 destructor, 0 any other
//   callee_arguments                    how many parameters it has
//   callee_address_taken                1 if something other than a call uses it
//   calls_in_caller                     how many calls of the callee the caller holds now
//   callee_asked, callee_inlined        how many questions there were about the callee before, and how many were answered
//                                       by yes
//
// If the file copies.bin is beside the plugin, which tells of one project how many of its modules define a function
// (mlgo_corpus/runs/functions/copies.py), there are two more:
//
//   callee_copies, caller_copies        the number of modules; 1 for what is local, and what is not in the file
//
// It builds with the headers of LLVM 18 and newer, and loads into the clang of the same version.

#include "llvm/Analysis/AssumptionCache.h"
#include "llvm/Analysis/BlockFrequencyInfo.h"
#include "llvm/Analysis/InlineCost.h"
#include "llvm/Analysis/InlineModelFeatureMaps.h"
#include "llvm/Analysis/InteractiveModelRunner.h"
#include "llvm/Analysis/MLInlineAdvisor.h"
#include "llvm/Analysis/OptimizationRemarkEmitter.h"
#include "llvm/Analysis/ProfileSummaryInfo.h"
#include "llvm/Analysis/TargetLibraryInfo.h"
#include "llvm/Analysis/TargetTransformInfo.h"
#include "llvm/IR/DiagnosticHandler.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/Module.h"
#include "llvm/IR/ValueHandle.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#if __has_include("llvm/Plugins/PassPlugin.h")
#include "llvm/Plugins/PassPlugin.h"
#else
#include "llvm/Passes/PassPlugin.h"
#endif

#include <dlfcn.h>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace llvm {
// Of LLVM 20 and older, which take a runner. Newer ones give their features to what makes it, and this is not used.
extern const std::vector<TensorSpec> FeatureMap;
} // namespace llvm

using namespace llvm;

namespace {

const char *const Extra[] = {"callee_linkage",   "caller_linkage",   "callee_library",       "caller_library",
                             "callee_kind",      "callee_arguments", "callee_address_taken", "calls_in_caller",
                             "callee_asked",     "callee_inlined"};
const char *const OfProject[] = {"callee_copies", "caller_copies"};

// LLVM gives a factory of advisors no module analysis manager. It makes one of each for a module, and modules one by one.
ModuleAnalysisManager *Manager;

// The options of live sessions are LLVM's own, which it does not declare in a header.
template <class T> T optionOf(StringRef Name) {
  auto &Known = cl::getRegisteredOptions();
  auto At = Known.find(Name);
  return At == Known.end() ? T() : static_cast<cl::opt<T> *>(At->second)->getValue();
}

int64_t linkageOf(const Function &F) {
  if (F.hasLocalLinkage())
    return 0;
  if (F.hasAvailableExternallyLinkage())
    return 4;
  if (F.isDiscardableIfUnused())
    return 1;
  return F.isWeakForLinker() ? 2 : 3;
}

// Itanium's mangling abbreviates what is in namespace std.
bool isOfLibrary(StringRef Name) {
  if (!Name.consume_front("_Z"))
    return false;
  if (Name.consume_front("N"))
    Name.consume_front("K");
  return Name.starts_with("9__gnu_cxx") ||
         (Name.size() > 1 && Name[0] == 'S' && StringRef("tabsiod").contains(Name[1]));
}

int64_t kindOf(StringRef Name) {
  if (Name.ends_with("D0Ev") || Name.ends_with("D1Ev") || Name.ends_with("D2Ev"))
    return 2;
  return Name.contains("C1E") || Name.contains("C2E");
}

// Some functions have thousands of calls, each of which is asked about: what is looked for goes through the shorter of
// two lists, or is remembered, so that a module costs no square of them.

int64_t callsOf(const Function &Callee, const Function &Caller) {
  auto IsOne = [&](const Value *V) {
    auto *Call = dyn_cast<CallBase>(V);
    return Call && Call->getCalledFunction() == &Callee && Call->getCaller() == &Caller;
  };
  int64_t OfUses = 0, OfCaller = 0;
  auto In = inst_begin(Caller), End = inst_end(Caller);
  for (const Use &One : Callee.uses()) {
    if (In == End)
      return OfCaller;
    OfUses += IsOne(One.getUser());
    OfCaller += IsOne(&*In++);
  }
  return OfUses;
}

// Whether something other than a call uses a function. No pass that runs with the inliner lets something use it so if
// nothing did before, and as long as what did so still does, nothing else has to be found.
class AddressTaken {
public:
  bool operator()(const Function &F) {
    if (IsNot || (Taker && takes(*cast<User>(Taker), F)))
      return !IsNot;
    const User *Found = nullptr;
    IsNot = !F.hasAddressTaken(&Found);
    Taker = const_cast<User *>(Found);
    return !IsNot;
  }

private:
  static bool takes(const User &By, const Function &F) {
    auto *Call = dyn_cast<CallBase>(&By);
    return is_contained(Call ? Call->args() : By.operands(), &F);
  }
  bool IsNot = false;
  WeakVH Taker;
};

// How many modules of the project define a function; without the file, nothing is known.
class Copies {
public:
  Copies() {
    Dl_info Own;
    if (!dladdr(reinterpret_cast<void *>(&kindOf), &Own))
      return;
    SmallString<256> Path(sys::path::parent_path(Own.dli_fname));
    sys::path::append(Path, "copies.bin");
    auto Read = MemoryBuffer::getFile(Path, /*IsText=*/false, /*RequiresNullTerminator=*/false);
    if (!Read || (*Read)->getBufferSize() % sizeof(Row) != sizeof(uint64_t))
      return;
    auto *Words = reinterpret_cast<const uint64_t *>((*Read)->getBufferStart());
    if ((*Read)->getBufferSize() / sizeof(Row) != Words[0])
      return;
    File = std::move(*Read);
    Rows = ArrayRef(reinterpret_cast<const Row *>(Words + 1), Words[0]);
  }
  bool areKnown() const { return File != nullptr; }
  int64_t of(const Function &F) const {
    if (F.hasLocalLinkage() || F.hasAvailableExternallyLinkage())
      return 1;
    uint64_t Hash = 0xCBF29CE484222325;
    for (unsigned char Byte : F.getName())
      Hash = (Hash ^ Byte) * 0x100000001B3;
    const Row *At = partition_point(Rows, [Hash](const Row &One) { return One.Hash < Hash; });
    return At != Rows.end() && At->Hash == Hash ? At->Number : 1;
  }

private:
  struct Row {
    uint64_t Hash, Number;
  };
  std::unique_ptr<MemoryBuffer> File;
  ArrayRef<Row> Rows;
};

const Copies &copies() {
  static const Copies Known;
  return Known;
}

class Runner : public InteractiveModelRunner {
public:
  Runner(LLVMContext &Context, const std::vector<TensorSpec> &Inputs, const std::string &Base, size_t First)
      : InteractiveModelRunner(Context, Inputs, InlineDecisionSpec, Base + ".out", Base + ".in"), First(First) {}
  void tell(ArrayRef<int64_t> Values) {
    for (size_t I = 0; I != Values.size(); ++I)
      *getTensor<int64_t>(First + I) = Values[I];
  }

private:
  const size_t First;
};

struct MakeRunner {
  LLVMContext &Context;
  std::string Base;
  bool WithDefault;

  std::unique_ptr<MLModelRunner> operator()(const std::vector<TensorSpec> &Known) const {
    std::vector<TensorSpec> Inputs(Known);
    if (WithDefault && Inputs.back().name() != DefaultDecisionSpec.name())
      Inputs.push_back(DefaultDecisionSpec);
    size_t First = Inputs.size();
    for (const char *Name : Extra)
      Inputs.push_back(TensorSpec::createSpec<int64_t>(Name, {1}));
    for (const char *Name : OfProject)
      if (copies().areKnown())
        Inputs.push_back(TensorSpec::createSpec<int64_t>(Name, {1}));
    return std::make_unique<Runner>(Context, Inputs, Base, First);
  }
  operator std::unique_ptr<MLModelRunner>() const { return (*this)(FeatureMap); }
};

class Advisor : public MLInlineAdvisor {
public:
  Advisor(Module &M, MakeRunner Make, std::function<bool(CallBase &)> Default)
      : MLInlineAdvisor(M, *Manager, Make, Default) {}

protected:
  std::unique_ptr<MLInlineAdvice> getAdviceFromModel(CallBase &CB, OptimizationRemarkEmitter &ORE) override {
    Function &Callee = *CB.getCalledFunction(), &Caller = *CB.getCaller();
    // By name: a function that is gone may leave its place in memory to another.
    auto &[Asked, Inlined, IsTaken] = Seen[Callee.getName().str()];
    SmallVector<int64_t, 16> Values{linkageOf(Callee), linkageOf(Caller), isOfLibrary(Callee.getName()),
                                    isOfLibrary(Caller.getName()), kindOf(Callee.getName()),
                                    int64_t(Callee.arg_size()), IsTaken(Callee), callsOf(Callee, Caller), Asked,
                                    Inlined};
    if (copies().areKnown())
      Values.append({copies().of(Callee), copies().of(Caller)});
    static_cast<Runner &>(*ModelRunner).tell(Values);
    auto Advice = MLInlineAdvisor::getAdviceFromModel(CB, ORE);
    ++Asked;
    Inlined += Advice->isInliningRecommended();
    return Advice;
  }

private:
  struct Known {
    int64_t Asked = 0, Inlined = 0;
    AddressTaken IsTaken;
  };
  std::map<std::string, Known> Seen;
};

// LLVM 20 and older do not take what is known of the target.
template <class Cost>
auto ask(int, CallBase &CB, TargetTransformInfo &TTI, Cost GetCost, OptimizationRemarkEmitter &ORE, bool Defers)
    -> decltype(shouldInline(CB, TTI, GetCost, ORE, Defers)) {
  return shouldInline(CB, TTI, GetCost, ORE, Defers);
}
template <class Cost>
auto ask(long, CallBase &CB, TargetTransformInfo &, Cost GetCost, OptimizationRemarkEmitter &ORE, bool Defers)
    -> decltype(shouldInline(CB, GetCost, ORE, Defers)) {
  return shouldInline(CB, GetCost, ORE, Defers);
}

// What LLVM's heuristic would decide, as LLVM's own advisors ask it.
bool defaultDecision(CallBase &CB, FunctionAnalysisManager &FAM, const InlineParams &Params) {
  Function &Caller = *CB.getCaller(), &Callee = *CB.getCalledFunction();
  ProfileSummaryInfo *PSI = FAM.getResult<ModuleAnalysisManagerFunctionProxy>(Caller)
                                .getCachedResult<ProfileSummaryAnalysis>(*Caller.getParent());
  auto &ORE = FAM.getResult<OptimizationRemarkEmitterAnalysis>(Caller);
  auto GetAC = [&](Function &F) -> AssumptionCache & { return FAM.getResult<AssumptionAnalysis>(F); };
  auto GetBFI = [&](Function &F) -> BlockFrequencyInfo & { return FAM.getResult<BlockFrequencyAnalysis>(F); };
  auto GetTLI = [&](Function &F) -> const TargetLibraryInfo & { return FAM.getResult<TargetLibraryAnalysis>(F); };
  auto &TTI = FAM.getResult<TargetIRAnalysis>(Callee);
  auto GetCost = [&](CallBase &Call) {
    bool Remarks = Callee.getContext().getDiagHandlerPtr()->isMissedOptRemarkEnabled("inline");
    return getInlineCost(Call, Params, TTI, GetAC, GetTLI, GetBFI, PSI, Remarks ? &ORE : nullptr);
  };
  return ask(0, CB, TTI, GetCost, ORE, Params.EnableDeferral.value_or(false)).has_value();
}

InlineAdvisor *makeAdvisor(Module &M, FunctionAnalysisManager &FAM, InlineParams Params, InlineContext Context) {
  auto Base = optionOf<std::string>("inliner-interactive-channel-base");
  if (Base.empty())
    return new DefaultInlineAdvisor(M, FAM, Params, Context);
  MakeRunner Make{M.getContext(), Base, optionOf<bool>("inliner-interactive-include-default")};
  return new Advisor(M, Make, [&FAM, Params](CallBase &CB) { return defaultDecision(CB, FAM, Params); });
}

} // namespace

extern "C" LLVM_ATTRIBUTE_WEAK PassPluginLibraryInfo llvmGetPassPluginInfo() {
  return {LLVM_PLUGIN_API_VERSION, "mlgo-corpus", LLVM_VERSION_STRING, [](PassBuilder &PB) {
            PB.registerAnalysisRegistrationCallback([](ModuleAnalysisManager &MAM) {
              Manager = &MAM;
              MAM.registerPass([] { return PluginInlineAdvisorAnalysis(makeAdvisor); });
            });
          }};
}
