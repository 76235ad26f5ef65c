//! Programs that run a script of `inputs` and print a few lines, the same in each round.
#![forbid(unsafe_code)]

use super::stage::Stage;
use crate::watch::Sample;
use std::fmt::Write;
use std::fs;
use std::process::Command;

const SQL: &str = include_str!("inputs/work.sql");
const PYTHON: &str = include_str!("inputs/work.py");
const LUA: &str = include_str!("inputs/work.lua");
const RUBY: &str = include_str!("inputs/work.rb");

/// Rows of the table `note`, each inserted by a statement of its own.
const NOTES: u64 = 30_000;

/// Rows of the table `item`, as in the script.
const ITEMS: u64 = 40_000;

/// On a database in memory, then on one in a file.
pub fn sqlite3(stage: &Stage) -> Result<Sample, String> {
    stage.input("work.sql", SQL)?;
    stage.input("statements.sql", &statements())?;
    let _ = fs::remove_file(stage.folder.join("work.db"));
    let databases: &[&str] = stage.pick(&[".open :memory:", ".open work.db"], &[".open :memory:"]);
    let work = databases.iter().flat_map(|open| [open, ".read work.sql"]);
    stage.measure(
        stage.command("sqlite3").args(["-batch", ":memory:"]).args(work),
        &vec![sql_prints(); databases.len()].join("\n"),
    )
}

/// Inserts, and among them questions that find nothing and updates that change nothing, which have to be planned all the same.
fn statements() -> String {
    let mut text = String::new();
    for id in 1..=NOTES {
        let words = "word ".repeat(words(id));
        let _ = writeln!(text, "INSERT INTO note VALUES ({id}, {}, '{words}');", item_of(id));
        if id % 2 == 0 {
            text += "SELECT shelf.name FROM item JOIN shelf ON shelf.id = item.shelf JOIN note ON note.item = item.id ";
            let _ = writeln!(text, "WHERE item.id = {id} AND shelf.name LIKE 'x%' ORDER BY item.name;");
        }
        if id % 4 == 0 {
            let words = format!("json_extract(json_object('words', words, 'list', json_array({id}, words)), '$.words')");
            let _ = writeln!(text, "UPDATE note SET words = {words} WHERE id = {id};");
        }
    }
    text
}

fn words(note: u64) -> usize {
    (note * 7 % 20) as usize
}

fn item_of(note: u64) -> u64 {
    note * 17 % ITEMS + 1
}

/// What the statements of the script select, computed.
fn sql_prints() -> String {
    let worth: u64 = (1..=ITEMS).sum();
    let kept = || (1..=ITEMS).filter(|id| id % 3 != 0);
    let length = |note: u64| 5 * words(note) as u64;
    let lengths: u64 = (1..=NOTES).map(length).sum();
    let even: u64 = (1..=NOTES).filter(|&note| item_of(note).is_multiple_of(2)).map(length).sum();
    // `item <i % 977> ` and two digits for each of i % 40 bytes; between the names of each of the 50 groups stand commas.
    let names: u64 = (1..=ITEMS).map(|id| format!("item {} ", id % 977).len() as u64 + 2 * (id % 40)).sum();
    let pairs = kept().filter(|&id| id < ITEMS && (id + 1) % 3 != 0).count();
    let (kept, left) = (kept().count(), kept().sum::<u64>());
    format!(
        "{ITEMS}|{worth}\n{NOTES}|{lengths}\n{even}\n1000|{worth}\n50|{}\n{kept}|{left}\n{pairs}\n{left}",
        names + ITEMS - 50
    )
}

/// With every object of the interpreter coming from malloc.
pub fn python3(stage: &Stage) -> Result<Sample, String> {
    stage.input("work.py", PYTHON)?;
    let mut command = stage.command("python3");
    command.env("PYTHONMALLOC", "malloc").env("PYTHONHASHSEED", "0").env("PYTHONDONTWRITEBYTECODE", "1");
    rounds(stage, command.arg("work.py"), stage.pick(3, 1), "213099 3500985 30000 30060 2116513 1157958")
}

/// See the script for what is counted.
pub fn lua(stage: &Stage) -> Result<Sample, String> {
    stage.input("work.lua", LUA)?;
    let printed = "32859549\t38548\t1132644\t988916\n738861";
    rounds(stage, stage.command("lua5.4").arg("work.lua"), stage.pick(5, 1), printed)
}

/// See the script for what is counted.
pub fn ruby(stage: &Stage) -> Result<Sample, String> {
    stage.input("work.rb", RUBY)?;
    let printed = "40 20937818 716081 59857 12081 327686 575491";
    rounds(stage, stage.command("ruby").arg("work.rb"), stage.pick(4, 1), printed)
}

/// Does so many rounds, each of which prints `printed`: seen with the C library's allocator, the same with every other.
fn rounds(stage: &Stage, command: &mut Command, rounds: usize, printed: &str) -> Result<Sample, String> {
    stage.measure(command.arg(rounds.to_string()), &vec![printed; rounds].join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_and_this_file_agree_about_the_items() {
        assert!(SQL.contains(&format!("i < {ITEMS})")));
    }
}
