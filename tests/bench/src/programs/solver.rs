//! z3 answers questions whose answers are known by how they were made.
#![forbid(unsafe_code)]

use super::stage::Stage;
use crate::watch::Sample;
use fastrand::Rng;
use std::fmt::Write;

/// Primes of 16 bits, in pairs whose product z3 is to take apart.
const PRIMES: [(u32, u32); 4] = [(65521, 64007), (63029, 61051), (60013, 62011), (64997, 59021)];

/// Unknowns of a system of equations.
const UNKNOWNS: usize = 16;

/// A number of rounds, each with one question of each kind.
pub fn z3(stage: &Stage) -> Result<Sample, String> {
    let rounds = stage.pick(4, 1);
    let questions: Vec<_> = (0..rounds).flat_map(questions).collect();
    let texts: Vec<_> = questions.iter().map(|it| format!("{}(check-sat)\n(reset)\n", it.text)).collect();
    let answers: Vec<_> = questions.iter().map(|it| it.answer).collect();
    stage.input("work.smt2", &texts.concat())?;
    stage.measure(stage.command("z3").arg("work.smt2"), &answers.join("\n"))
}

struct Question {
    text: String,
    answer: &'static str,
}

fn questions(round: usize) -> [Question; 5] {
    let random = &mut Rng::with_seed(round as u64);
    [factors(PRIMES[round]), group(26 + 2 * round), equations(random), stores(60 + 10 * round, random), pigeons(6)]
}

/// Two factors of a product of two primes: there are some.
fn factors((a, b): (u32, u32)) -> Question {
    let product = u64::from(a) * u64::from(b);
    let mut text = String::from("(set-logic QF_BV)\n(declare-const a (_ BitVec 32))\n(declare-const b (_ BitVec 32))\n");
    let _ = writeln!(text, "(assert (= (bvmul a b) (_ bv{product} 32)))");
    for factor in ["a", "b"] {
        let _ = writeln!(text, "(assert (bvult (_ bv1 32) {factor}))\n(assert (bvult {factor} (_ bv65536 32)))");
    }
    Question { text, answer: "sat" }
}

/// Where an operation is associative, two bracketings of the same elements are equal: the opposite cannot be had.
fn group(elements: usize) -> Question {
    let mut text =
        String::from("(declare-sort E 0)\n(declare-fun f (E E) E)\n(declare-fun inverse (E) E)\n(declare-const e E)\n");
    text.push_str("(assert (forall ((x E) (y E) (z E)) (= (f (f x y) z) (f x (f y z)))))\n");
    text.push_str("(assert (forall ((x E)) (= (f e x) x)))\n(assert (forall ((x E)) (= (f (inverse x) x) e)))\n");
    text.extend((0..elements).map(|i| format!("(declare-const c{i} E)\n")));
    let left = (1..elements).fold("c0".to_owned(), |term, i| format!("(f {term} c{i})"));
    let right = (0..elements - 1).rev().fold(format!("c{}", elements - 1), |term, i| format!("(f c{i} {term})"));
    let _ = writeln!(text, "(assert (not (= {left} {right})))");
    Question { text, answer: "unsat" }
}

/// Integer equations that were made out of a solution.
fn equations(random: &mut Rng) -> Question {
    let mut text = String::from("(set-logic QF_LIA)\n");
    let solution: Vec<i32> = (0..UNKNOWNS).map(|_| random.i32(0..50)).collect();
    text.extend((0..UNKNOWNS).map(|i| format!("(declare-const x{i} Int)\n(assert (and (<= 0 x{i}) (< x{i} 50)))\n")));
    for _ in 0..UNKNOWNS * 2 / 3 {
        let terms: Vec<(i32, usize)> = (0..4).map(|_| (random.i32(1..4), random.usize(0..UNKNOWNS))).collect();
        let sum: i32 = terms.iter().map(|&(factor, i)| factor * solution[i]).sum();
        let terms: String = terms.iter().map(|(factor, i)| format!(" (* {factor} x{i})")).collect();
        let _ = writeln!(text, "(assert (= (+{terms}) {sum}))");
    }
    Question { text, answer: "sat" }
}

/// Writes to distinct places of an array in two orders: the arrays do not differ.
fn stores(writes: usize, random: &mut Rng) -> Question {
    let mut text = String::from("(set-logic QF_AUFLIA)\n(declare-const a (Array Int Int))\n");
    text.extend((0..writes).map(|i| format!("(declare-const i{i} Int)\n(declare-const v{i} Int)\n")));
    let places: String = (0..writes).map(|i| format!(" i{i}")).collect();
    let _ = writeln!(text, "(assert (distinct{places}))");
    let mut order: Vec<usize> = (0..writes).collect();
    let array = |order: &[usize]| order.iter().fold("a".to_owned(), |term, i| format!("(store {term} i{i} v{i})"));
    let first = array(&order);
    random.shuffle(&mut order);
    let _ = writeln!(text, "(assert (not (= {first} {})))", array(&order));
    Question { text, answer: "unsat" }
}

/// One pigeon more than there are holes.
fn pigeons(holes: usize) -> Question {
    let mut text = String::from("(set-logic QF_UF)\n");
    let pairs = || (0..=holes).flat_map(|pigeon| (0..holes).map(move |hole| (pigeon, hole)));
    text.extend(pairs().map(|(pigeon, hole)| format!("(declare-const p{pigeon}-{hole} Bool)\n")));
    for pigeon in 0..=holes {
        let somewhere: String = (0..holes).map(|hole| format!(" p{pigeon}-{hole}")).collect();
        let _ = writeln!(text, "(assert (or{somewhere}))");
    }
    for (pigeon, hole) in pairs() {
        text.extend((0..pigeon).map(|other| format!("(assert (not (and p{pigeon}-{hole} p{other}-{hole})))\n")));
    }
    Question { text, answer: "unsat" }
}
