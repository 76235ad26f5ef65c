//! Ghostscript draws pages into a bitmap, out of a PostScript program and out of the document that it made of that itself.
//!
//! Each page of the program prints numbers that are computed here too; the bitmap must be, byte by byte, what the C library's
//! allocator led to.
#![forbid(unsafe_code)]

use super::stage::Stage;
use crate::watch::Sample;
use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

const PAGES: &str = include_str!("inputs/work.ps");

/// The pages as a document.
const DOCUMENT: &str = "work.pdf";

/// What the program drew without the allocator under test.
const REFERENCE: &str = "reference.pgm";

/// What it draws with it.
const DRAWN: &str = "drawn.pgm";

/// Draws the pages twice.
pub fn pages(stage: &Stage) -> Result<Sample, String> {
    let pages = stage.pick(30, 2);
    stage.input("work.ps", PAGES)?;
    if !stage.folder.join(REFERENCE).exists() {
        stage.ask(ghostscript(&mut stage.helper("gs"), "pdfwrite", pages, DOCUMENT).arg("work.ps"))?;
        stage.ask(draw(&mut stage.helper("gs"), pages, DRAWN))?;
        fs::rename(stage.folder.join(DRAWN), stage.folder.join(REFERENCE)).map_err(|error| error.to_string())?;
    }
    let expected: Vec<_> = (1..=pages).map(page_prints).collect();
    let sample = stage.measure(draw(&mut stage.command("gs"), pages, DRAWN), &expected.join("\n"))?;
    stage.ask(stage.helper("cmp").args([DRAWN, REFERENCE])).map_err(|why| {
        format!(
            "{DRAWN} is not {REFERENCE}, which another release of ghostscript may have drawn: then remove {REFERENCE}\n{why}"
        )
    })?;
    Ok(sample)
}

fn draw<'a>(command: &'a mut Command, pages: u32, file: &str) -> &'a mut Command {
    ghostscript(command, "pgmraw", pages, file).args(["work.ps", DOCUMENT])
}

fn ghostscript<'a>(command: &'a mut Command, device: &str, pages: u32, file: &str) -> &'a mut Command {
    command.args(["-q", "-dBATCH", "-dNOPAUSE", "-r72", &format!("-sDEVICE={device}")]);
    command.args([format!("-dpages={pages}"), format!("-sOutputFile={file}")])
}

/// What the page of that number prints: the sum of its numbers, how many distinct words it has, and their bytes.
fn page_prints(page: u32) -> String {
    let mut dice = Dice(page);
    // 60 shapes of 55 numbers each; 128 rows of an image.
    (0..60 * 55 + 128 * 256).for_each(|_| dice.step());
    let (mut words, mut bytes) = (BTreeSet::new(), 0);
    for _line in 0..70 {
        // A font and its size.
        (0..2).for_each(|_| dice.step());
        for _word in 0..12 {
            let letters = 3 + dice.roll(12);
            let word: Vec<_> = (0..letters).map(|_| dice.roll(26)).collect();
            bytes += word.len() + 1;
            words.insert(word);
        }
    }
    let numbers: u32 = (0..3000).map(|_| dice.roll(60000)).sum();
    format!("{numbers} {} {bytes}", words.len())
}

/// The random numbers of `work.ps`.
struct Dice(u32);

impl Dice {
    fn roll(&mut self, below: u32) -> u32 {
        self.step();
        self.0 % below
    }

    fn step(&mut self) {
        self.0 = self.0 * 16807 % 65537;
    }
}
