//! The command line of `cargo verify`. Called by `main`; knows the names of the [`steps`](crate::steps) and nothing else.

use crate::steps::STEPS;
use lexopt::prelude::{Long, Short, ValueExt};

/// What the command line asks for.
pub enum Task {
    /// The options and the steps.
    Help,
    /// The steps.
    List,
    /// A run.
    Run(Options),
}

/// Which steps to run, and how far.
#[derive(Default)]
pub struct Options {
    /// Where it is not empty: no other steps than these.
    only: Vec<String>,
    skip: Vec<String>,
    /// Goes on after a failed step.
    pub keep_going: bool,
}

impl Options {
    /// Whether the step of this name is to run.
    pub fn wants(&self, step: &str) -> bool {
        let named = |list: &[String]| list.iter().any(|name| name == step);
        (self.only.is_empty() || named(&self.only)) && !named(&self.skip)
    }
}

/// Reads a command line.
pub fn parse(mut parser: lexopt::Parser) -> Result<Task, lexopt::Error> {
    let mut options = Options::default();
    while let Some(argument) = parser.next()? {
        match argument {
            Long("only") => options.only.push(step_name(&mut parser)?),
            Long("skip") => options.skip.push(step_name(&mut parser)?),
            Long("keep-going") => options.keep_going = true,
            Long("list") => return Ok(Task::List),
            Long("help") | Short('h') => return Ok(Task::Help),
            _ => return Err(argument.unexpected()),
        }
    }
    Ok(Task::Run(options))
}

fn step_name(parser: &mut lexopt::Parser) -> Result<String, lexopt::Error> {
    let name = parser.value()?.string()?;
    match STEPS.iter().any(|step| step.name == name) {
        true => Ok(name),
        false => Err(format!("there is no step `{name}`").into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(words: &[&str]) -> Result<Task, lexopt::Error> {
        parse(lexopt::Parser::from_args(words))
    }

    fn wanted(words: &[&str]) -> Vec<&'static str> {
        let Ok(Task::Run(options)) = parsed(words) else { panic!("{words:?} asks for a run") };
        STEPS.iter().map(|step| step.name).filter(|name| options.wants(name)).collect()
    }

    #[test]
    fn all_steps_run_unless_some_are_named() {
        assert_eq!(wanted(&[]).len(), STEPS.len());
        assert_eq!(wanted(&["--only", "tests", "--only=format"]), ["format", "tests"]);
        assert_eq!(wanted(&["--skip", "bench"]).len(), STEPS.len() - 1);
    }

    #[test]
    fn what_is_not_known_is_refused() {
        for words in [["--only", "nothing"], ["--skip", "nothing"], ["--quick", "--list"]] {
            assert!(parsed(&words).is_err(), "{words:?}");
        }
    }
}
