//! Compilers at work on a generated source. What they make is linked and run afterwards, without the allocator and the clock.
#![forbid(unsafe_code)]

use super::stage::Stage;
use crate::watch::Sample;

/// Templates of the standard library over a type of their own for each number: the compiler instantiates them all anew.
const TEMPLATE: &str = "
template <unsigned N> struct Word {
    std::string text;
    bool operator<(const Word &other) const { return text < other.text; }
};

template <unsigned N> unsigned instance() {
    std::map<Word<N>, std::vector<unsigned>> places;
    for (unsigned k = 0; k < 100; k++) places[Word<N>{std::to_string(k * (N + 3) % 1009)}].push_back(k + N);
    std::vector<std::pair<Word<N>, unsigned>> sums;
    for (auto &[word, list] : places) sums.emplace_back(word, std::accumulate(list.begin(), list.end(), 0u));
    std::sort(sums.begin(), sums.end(), [](auto &a, auto &b) { return a.second % (N + 7) < b.second % (N + 7); });
    unsigned sum = 0;
    for (auto &[word, worth] : sums) sum += word.text.size() * worth;
    return sum;
}
";

/// clang with the C++ library of g++.
pub fn clang(stage: &Stage) -> Result<Sample, String> {
    compile(stage, "clang++", stage.pick(3, 1))
}

/// The driver, the compiler proper and the assembler.
pub fn gplusplus(stage: &Stage) -> Result<Sample, String> {
    compile(stage, "g++", stage.pick(3, 1))
}

fn compile(stage: &Stage, compiler: &str, instances: u32) -> Result<Sample, String> {
    stage.input("large.cpp", &source(instances))?;
    let mut command = stage.command(compiler);
    let sample = stage.measure(command.args(["-std=c++17", "-O1", "-g", "-c", "large.cpp", "-o", "large.o"]), "")?;
    stage.ask(stage.helper(compiler).args(["large.o", "-o", "large"]))?;
    let printed = stage.ask(&mut stage.helper("./large"))?;
    let expected: u32 = (0..instances).map(instance).sum();
    match printed == expected.to_string() {
        true => Ok(Sample { checksum: u64::from(expected), ..sample }),
        false => Err(format!("what it compiled printed {printed:?} in place of {expected}")),
    }
}

fn source(instances: u32) -> String {
    let headers = ["algorithm", "iostream", "map", "numeric", "string", "vector"];
    let mut source: String = headers.map(|header| format!("#include <{header}>\n")).concat();
    source += TEMPLATE;
    source += "\nint main() {\n    unsigned sum = 0;\n";
    source.extend((0..instances).map(|number| format!("    sum += instance<{number}>();\n")));
    source + "    std::cout << sum << std::endl;\n}\n"
}

/// What `instance<number>` of the source returns.
fn instance(number: u32) -> u32 {
    (0..100).map(|k| (k * (number + 3) % 1009).to_string().len() as u32 * (k + number)).sum()
}
