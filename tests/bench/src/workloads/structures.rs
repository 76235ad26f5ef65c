//! Shapes made of collections, whose nodes lie in blocks of the allocator and point at each other: a tree, and parsed text.
//!
//! Called by [`super::Workload`]; calls [`crate::heap`] through the allocator that its collections are given.
#![forbid(unsafe_code)]

use super::kit::{SEED, add, sum};
use crate::heap::Tested;
use crate::watch::{Length, Sample, Watch};
use allocator_api2::boxed::Box;
use allocator_api2::vec::Vec;
use fastrand::Rng;
use std::alloc::GlobalAlloc;
use std::array::from_fn;
use std::fmt::Write;

/// One of them.
pub enum Structure {
    /// Many small nodes.
    Tree,
    /// Lists, maps and strings.
    Parse,
}

impl Structure {
    pub fn run<A: GlobalAlloc>(&self, heap: Tested<A>, length: Length) -> Sample {
        match self {
            Self::Tree => tree(heap, length),
            Self::Parse => parse(heap, length),
        }
    }
}

struct Node<'a, A: GlobalAlloc> {
    key: u64,
    branches: [Option<Box<Self, Tested<'a, A>>>; 2],
}

impl<'a, A: GlobalAlloc> Node<'a, A> {
    /// A complete tree of that depth, whose nodes are numbered from the root down.
    fn grow(heap: Tested<'a, A>, key: u64, depth: u32) -> Box<Self, Tested<'a, A>> {
        let branch = |side| (depth > 1).then(|| Self::grow(heap, 2 * key + side, depth - 1));
        Box::new_in(Self { key, branches: [0, 1].map(branch) }, heap)
    }

    fn walk(&self) -> u64 {
        add(sum(self.branches.iter().flatten(), |branch| branch.walk()), self.key)
    }
}

/// In a lap each of eight trees is dropped, grown anew and walked.
fn tree<A: GlobalAlloc>(heap: Tested<A>, length: Length) -> Sample {
    const DEPTH: u32 = 12;
    let mut trees: [_; 8] = from_fn(|_| None);
    let operations = trees.len() as u64 * ((1 << DEPTH) - 1);
    Watch::new(length).laps(operations, || {
        sum(trees.iter_mut().zip(1..), |(tree, key)| {
            // Dropped first: an assignment would drop it last.
            *tree = None;
            tree.insert(Node::grow(heap, key, DEPTH)).walk()
        })
    })
}

type Text<'a, A> = Vec<u8, Tested<'a, A>>;

/// What a piece of JSON means, as far as [`document`] makes use of it.
enum Value<'a, A: GlobalAlloc> {
    Number(u64),
    Text(Text<'a, A>),
    List(Vec<Self, Tested<'a, A>>),
    Map(Vec<(Text<'a, A>, Self), Tested<'a, A>>),
}

impl<A: GlobalAlloc> Value<'_, A> {
    fn walk(&self) -> u64 {
        let text = |text: &Text<A>| sum(text.iter(), |byte| u64::from(*byte));
        match self {
            Self::Number(number) => *number,
            Self::Text(it) => text(it),
            Self::List(list) => sum(list.iter(), Self::walk),
            Self::Map(map) => sum(map.iter(), |(key, value)| add(text(key), value.walk())),
        }
    }
}

/// Reads a document that is known to be well-formed and without blanks.
struct Parser<'t, 'a, A> {
    rest: &'t [u8],
    heap: Tested<'a, A>,
}

impl<'a, A: GlobalAlloc> Parser<'_, 'a, A> {
    fn value(&mut self) -> Value<'a, A> {
        match self.rest[0] {
            b'"' => Value::Text(self.text()),
            b'[' => Value::List(self.items(Self::value)),
            b'{' => Value::Map(self.items(|it| (it.text(), it.skip().value()))),
            _ => Value::Number(self.number()),
        }
    }

    /// What stands between brackets, separated by commas.
    fn items<T>(&mut self, item: impl Fn(&mut Self) -> T) -> Vec<T, Tested<'a, A>> {
        let mut items = Vec::new_in(self.heap);
        while !matches!(self.skip().rest[0], b']' | b'}') {
            items.push(item(self));
            if self.rest[0] != b',' {
                break;
            }
        }
        self.skip();
        items
    }

    fn text(&mut self) -> Text<'a, A> {
        let length = self.skip().rest.iter().position(|byte| *byte == b'"').expect("a text ends");
        let mut text = Vec::with_capacity_in(length, self.heap);
        text.extend_from_slice(self.taken(length));
        self.skip();
        text
    }

    fn number(&mut self) -> u64 {
        let length = self.rest.iter().position(|byte| !byte.is_ascii_digit()).expect("a number stands within a record");
        self.taken(length).iter().fold(0, |number, digit| number * 10 + u64::from(digit - b'0'))
    }

    fn skip(&mut self) -> &mut Self {
        self.taken(1);
        self
    }

    fn taken(&mut self, length: usize) -> &[u8] {
        let (taken, rest) = self.rest.split_at(length);
        self.rest = rest;
        taken
    }
}

/// Records in a document.
const RECORDS: u64 = 300;

fn parse<A: GlobalAlloc>(heap: Tested<A>, length: Length) -> Sample {
    let document = document();
    Watch::new(length).laps(RECORDS, || {
        let value = Parser { rest: document.as_bytes(), heap }.value();
        value.walk()
    })
}

/// A list of records, each with some twenty values. Words have 1 to 24 letters, short ones more often.
fn document() -> String {
    let mut random = Rng::with_seed(SEED);
    let mut text = String::new();
    for number in 0..RECORDS {
        text.push(if number == 0 { '[' } else { ',' });
        record(&mut text, number, &mut random).expect("a string takes what is written");
    }
    text + "]"
}

fn record(text: &mut String, number: u64, random: &mut Rng) -> std::fmt::Result {
    write!(text, r#"{{"id":{number},"name":"{}","address":{{"#, word(random))?;
    write!(text, r#""street":"{} {}","number":{}}},"tags":["#, word(random), word(random), random.u32(1..1000))?;
    separated(text, random, |text, random| write!(text, r#""{}""#, word(random)))?;
    text.push_str(r#"],"orders":["#);
    separated(text, random, |text, random| write!(text, r#"{{"item":"{}","count":{}}}"#, word(random), random.u32(1..100)))?;
    text.push_str("]}");
    Ok(())
}

/// Up to eight items with commas between them.
fn separated(
    text: &mut String,
    random: &mut Rng,
    item: impl Fn(&mut String, &mut Rng) -> std::fmt::Result,
) -> std::fmt::Result {
    for number in 0..random.u32(..=8) {
        text.push_str(if number == 0 { "" } else { "," });
        item(text, random)?;
    }
    Ok(())
}

fn word(random: &mut Rng) -> String {
    let length = random.usize(1..=24).min(random.usize(1..=24));
    (0..length).map(|_| random.lowercase()).collect()
}
