//! A Linux program on Freestone. The first two items are what to copy: every allocation of the program goes there.
//!
//! The work below it is four threads that make words and a fifth that counts them, so that blocks are allocated on one core
//! and freed on another.

use freestone_linux::Freestone;
use std::collections::BTreeMap;
use std::sync::mpsc;
use std::thread;

#[global_allocator]
static ALLOCATOR: Freestone = Freestone;

const MAKERS: usize = 4;
const WORDS: usize = 50_000;

fn main() {
    let counts = count();
    let words: usize = counts.values().sum();
    println!("{words} words, {} of them distinct", counts.len());
    drop(counts);
    // The heap can be asked what it holds and what it did, and be trimmed.
    print!("heap report of this program\n{}", Freestone::heap().stats());
}

/// How often each word was sent.
fn count() -> BTreeMap<String, usize> {
    let (sender, receiver) = mpsc::channel();
    for maker in 0..MAKERS {
        let sender = sender.clone();
        thread::spawn(move || (0..WORDS).try_for_each(|number| sender.send(word(maker, number))));
    }
    drop(sender);
    let mut counts = BTreeMap::new();
    receiver.iter().for_each(|word| *counts.entry(word).or_default() += 1);
    counts
}

/// A word of 1 to 300 letters or so.
fn word(maker: usize, number: usize) -> String {
    let letter = char::from(b'a' + (number % 26) as u8);
    format!("{maker}{}{}", letter.to_string().repeat(number * number % 300), number % 1000)
}
