//! Compilers at work on large sources: gcc and g++ on generated ones, cargo on this project. What comes out must run right.

use crate::stage::{Mode, Stage};
use std::collections::BTreeMap;
use std::env;
use std::fmt::Write;
use std::fs;
use std::path::Path;

/// Functions in the C source.
const FUNCTIONS: u32 = 700;

/// Instances of the template in the C++ source.
const INSTANCES: u32 = 40;

/// 700 functions, each with a table and a switch, chained; the program prints what this test computes.
pub fn gcc(mode: Mode) {
    let stage = Stage::new("gcc", mode, &["gcc"]);
    fs::write(stage.folder.join("large.c"), c_source()).expect("the folder can be written");
    stage.run("gcc", &["-O2", "-g", "large.c", "-o", "large"]);
    let expected = (0..FUNCTIONS).fold(1, |value, number| c_function(number, value));
    assert_eq!(stage.run("./large", &[]), expected.to_string());
}

fn c_source() -> String {
    let mut source = String::from("#include <stdio.h>\n");
    for number in 0..FUNCTIONS {
        let _ = writeln!(source, "static unsigned f{number}(unsigned x) {{");
        let _ = writeln!(source, "  unsigned t[8]; for (unsigned k = 0; k < 8; k++) t[k] = x * {}u + k;", 2 * number + 3);
        let _ = writeln!(source, "  switch (x % 4) {{ case 0: x ^= t[1]; break; case 1: x += t[2] >> 3; break;");
        let _ = writeln!(source, "    case 2: x -= t[3]; break; default: x ^= t[x % 8] << 1; }}");
        let _ = writeln!(source, "  return x * {}u + t[x % 8];\n}}", number | 1);
    }
    source.push_str("int main(void) {\n  unsigned x = 1;\n");
    (0..FUNCTIONS).for_each(|number| source += &format!("  x = f{number}(x);\n"));
    source + "  printf(\"%u\\n\", x);\n}\n"
}

/// What `f<number>` of the C source returns.
fn c_function(number: u32, mut x: u32) -> u32 {
    let start = x;
    let t = |k: u32| start.wrapping_mul(2 * number + 3).wrapping_add(k);
    x = match x % 4 {
        0 => x ^ t(1),
        1 => x.wrapping_add(t(2) >> 3),
        2 => x.wrapping_sub(t(3)),
        _ => x ^ (t(x % 8) << 1),
    };
    x.wrapping_mul(number | 1).wrapping_add(t(x % 8))
}

/// Forty instances of a template over maps, strings and vectors; the program prints what this test computes.
pub fn gplusplus(mode: Mode) {
    let stage = Stage::new("gplusplus", mode, &["g++"]);
    fs::write(stage.folder.join("large.cpp"), cplusplus_source()).expect("the folder can be written");
    stage.run("g++", &["-std=c++17", "-O1", "-g", "large.cpp", "-o", "large"]);
    let expected: u32 = (0..INSTANCES).map(cplusplus_instance).sum();
    assert_eq!(stage.run("./large", &[]), expected.to_string());
}

fn cplusplus_source() -> String {
    let mut source =
        String::from("#include <algorithm>\n#include <iostream>\n#include <map>\n#include <string>\n#include <vector>\n");
    source.push_str(
        "template <unsigned N> unsigned instance() {
           std::map<std::string, unsigned> worth;
           for (unsigned k = 0; k < 200; k++) worth[std::string(k * (N + 1) % 17, 'x') + std::to_string(k % 23)] += k;
           std::vector<std::pair<std::string, unsigned>> sorted(worth.begin(), worth.end());
           std::sort(sorted.begin(), sorted.end(), [](auto &a, auto &b) { return a.second + N < b.second + N; });
           unsigned sum = 0;
           for (auto &entry : sorted) sum += entry.first.size() * entry.second;
           return sum;
         }
         int main() {
           unsigned sum = 0;\n",
    );
    (0..INSTANCES).for_each(|number| source += &format!("  sum += instance<{number}>();\n"));
    source + "  std::cout << sum << std::endl;\n}\n"
}

/// What `instance<number>` of the C++ source returns.
fn cplusplus_instance(number: u32) -> u32 {
    let mut worth = BTreeMap::new();
    for k in 0..200 {
        let key = "x".repeat((k * (number + 1) % 17) as usize) + &(k % 23).to_string();
        *worth.entry(key).or_insert(0) += k;
    }
    worth.iter().map(|(key, worth)| key.len() as u32 * worth).sum()
}

/// cargo builds the core, os-linux and an example of this project into an empty folder; the example must work.
pub fn cargo_build(mode: Mode) {
    let stage = Stage::new("cargo", mode, &[]);
    let target = stage.folder.join("target");
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../Cargo.toml");
    let cargo = env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let mut command = stage.command(&cargo);
    command.args(["build", "--quiet", "--offline", "-p", "freestone-examples", "--bin", "linux", "--manifest-path"]);
    stage.output(command.arg(workspace).arg("--target-dir").arg(&target));
    let printed = stage.run(&target.join("debug/linux").to_string_lossy(), &[]);
    assert!(printed.contains("200000 words"), "{printed}");
}
