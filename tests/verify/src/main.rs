//! `cargo verify`: everything the tests need, then every check of the project, the test run last.
//!
//! People and `.ci/run` call it. What there is to do stands in [`steps`], how it is run and logged in [`runner`]; the Debian
//! packages are [`packages`]' concern. It stops at the first step that fails, names it and its log, and exits with 1.
//!
//! The step `tests` comes last and its output is not followed by any line of ours, so that whoever reads the end of the log
//! (a person, a CI) sees the test runner's own count.

mod options;
mod packages;
mod runner;
mod steps;

use options::{Options, Task};
use runner::Runner;
use std::io;
use std::process::ExitCode;
use std::time::Instant;
use steps::{STEPS, Step};

fn main() -> ExitCode {
    match options::parse(lexopt::Parser::from_env()) {
        Ok(Task::Help) => print_help(),
        Ok(Task::List) => print_steps(),
        Ok(Task::Run(options)) => return run(&options),
        Err(why) => {
            eprintln!("verify: {why}; `cargo verify --help` shows the options");
            return ExitCode::from(2);
        }
    }
    ExitCode::SUCCESS
}

fn print_help() {
    println!("cargo verify [--list] [--only STEP]... [--skip STEP]... [--keep-going]\n");
    println!("  --list         shows the steps and ends");
    println!("  --only STEP    runs this step and no other; may be given several times");
    println!("  --skip STEP    leaves this step out; may be given several times");
    println!("  --keep-going   runs the steps after a failed one too\n");
    print_steps();
}

fn print_steps() {
    for step in STEPS {
        println!("{:<10} {}", step.name, step.about);
    }
}

fn run(options: &Options) -> ExitCode {
    let runner = match Runner::new() {
        Ok(runner) => runner,
        Err(why) => {
            eprintln!("verify: cannot make the folder for the logs: {why}");
            return ExitCode::FAILURE;
        }
    };
    let mut failed = Vec::new();
    for step in STEPS.iter().filter(|step| options.wants(step.name)) {
        if !passes(&runner, step) {
            failed.push(step.name);
            if !options.keep_going {
                break;
            }
        }
    }
    verdict(&failed)
}

fn passes(runner: &Runner, step: &Step) -> bool {
    println!("verify: {} – {}", step.name, step.about);
    let start = Instant::now();
    let result = runner.log(step).and_then(|log| (step.run)(&log));
    report(runner, step, start, result)
}

/// Says how a step ended; a step whose output was shown as it came and that passed says nothing more.
fn report(runner: &Runner, step: &Step, start: Instant, result: io::Result<()>) -> bool {
    let seconds = start.elapsed().as_secs();
    match result {
        Ok(()) if step.show == runner::Show::Live => true,
        Ok(()) => {
            println!("verify: {} ok, {seconds} s", step.name);
            true
        }
        Err(why) => {
            runner.show_end(step);
            println!("verify: {} FAILED after {seconds} s: {why}", step.name);
            println!("verify: its log is {}", runner.log_path(step).display());
            false
        }
    }
}

fn verdict(failed: &[&str]) -> ExitCode {
    if failed.is_empty() {
        return ExitCode::SUCCESS;
    }
    println!("verify: failed: {}", failed.join(", "));
    ExitCode::FAILURE
}
