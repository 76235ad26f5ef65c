//! The plots, as SVG: time and memory of all workloads beside glibc's, memory over time, scaling by threads.
//!
//! Called by `main`; reads [`crate::results`]. The background is transparent and every colour is one of middle brightness, so
//! that they can be read on white and on black.
#![forbid(unsafe_code)]

use crate::bars::LEAST_KIB;
use crate::peers::{FLOOR, FREESTONE, FREESTONE_PRELOADED, GLIBC};
use crate::results::{Figure, Kind, Results, Subject, peak};
use crate::watch::Sample;
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use std::error::Error;
use std::fs;
use std::ops::Range;
use std::path::Path;

const TEXT: RGBColor = RGBColor(118, 126, 136);
const OURS: RGBColor = RGBColor(226, 82, 38);
const OTHERS: [RGBColor; 9] = [
    RGBColor(66, 133, 214),
    RGBColor(58, 160, 92),
    RGBColor(168, 108, 204),
    RGBColor(196, 148, 32),
    RGBColor(40, 160, 168),
    RGBColor(206, 92, 148),
    RGBColor(132, 132, 66),
    RGBColor(146, 110, 84),
    RGBColor(120, 130, 200),
];
const WIDTH: u32 = 980;
const ROW: i32 = 22;
const LEFT: i32 = 190;
const LEGEND: i32 = 190;
const HEAD: i32 = 44;
const FOOT: i32 = 40;

type Done = Result<(), Box<dyn Error>>;
type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Writes all plots for which there are figures into `folder`.
pub fn all(results: &Results, folder: &Path) -> Result<(), String> {
    write(results, folder).map_err(|error| format!("{}: {error}", folder.display()))
}

fn write(results: &Results, folder: &Path) -> Done {
    fs::create_dir_all(folder)?;
    let of = |programs: bool| {
        results.subjects.iter().filter(move |it| (it.kind == Kind::Program) == programs).collect::<Vec<_>>()
    };
    let time: (Figure, f64) = (Sample::cost, 0.0);
    let memory: (Figure, f64) = (peak, LEAST_KIB);
    let (workloads, programs) = (of(false), of(true));
    dots(&folder.join("time.svg"), "CPU time, glibc = 1 (less is better)", &workloads, time)?;
    dots(&folder.join("memory.svg"), "Peak resident size, glibc = 1 (less is better)", &workloads, memory)?;
    dots(&folder.join("programs-time.svg"), "CPU time of programs, glibc = 1 (less is better)", &programs, time)?;
    dots(&folder.join("programs-memory.svg"), "Peak of programs, glibc = 1 (less is better)", &programs, memory)?;
    scaling(&folder.join("scaling.svg"), results)?;
    let drawn = results.subjects.iter().filter(|it| it.columns.iter().any(|column| !column.timeline.is_empty()));
    drawn.into_iter().try_for_each(|it| over_time(&folder.join(format!("memory-{}.svg", it.name)), it))
}

/// An allocator as it is drawn everywhere: its colour, which its settings share, and its shape.
struct Look {
    colour: RGBColor,
    size: i32,
    shape: Shape,
    fill: Fill,
}

/// How it comes into a program.
enum Shape {
    /// As a crate.
    Circle,
    /// As a crate, and it is ours.
    Diamond,
    /// Preloaded.
    Triangle,
}

#[derive(PartialEq, Eq)]
enum Fill {
    /// As it is by default.
    Full,
    /// In another setting.
    Hollow,
}

impl Look {
    fn of(peer: &str) -> Self {
        const NAMES: [&str; 8] =
            ["mimalloc-2", "mimalloc-3", "jemalloc", "snmalloc", "tcmalloc", "rpmalloc", "rusty_alloc", GLIBC];
        let plain = peer.split(' ').next().unwrap_or(peer);
        let family = plain.strip_prefix("lib").and_then(|it| it.strip_suffix(".so"));
        let place = NAMES.iter().position(|name| name.starts_with(family.unwrap_or(plain))).unwrap_or(NAMES.len());
        let (colour, size) = if is_ours(peer) { (OURS, 6) } else { (OTHERS[place], 4) };
        let shape = match family {
            Some(_) => Shape::Triangle,
            None if is_ours(peer) => Shape::Diamond,
            None => Shape::Circle,
        };
        Self { colour, size, shape, fill: if plain == peer { Fill::Full } else { Fill::Hollow } }
    }

    fn draw(&self, area: &Area, (x, y): (i32, i32)) -> Done {
        let size = self.size;
        match self.shape {
            Shape::Circle if self.fill == Fill::Full => area.draw(&Circle::new((x, y), size, self.colour.filled()))?,
            Shape::Circle => area.draw(&Circle::new((x, y), size, self.colour.stroke_width(2)))?,
            Shape::Diamond => self.outline(area, vec![(x - size, y), (x, y - size), (x + size, y), (x, y + size)])?,
            Shape::Triangle => {
                self.outline(area, vec![(x - size, y + size - 1), (x, y - size), (x + size, y + size - 1)])?
            }
        }
        Ok(())
    }

    fn outline(&self, area: &Area, mut corners: Vec<(i32, i32)>) -> Done {
        if self.fill == Fill::Full {
            area.draw(&Polygon::new(corners, self.colour.filled()))?;
        } else {
            // Past the first corner again, so that it is as sharp as the others.
            corners.extend_from_within(..2);
            area.draw(&PathElement::new(corners, self.colour.stroke_width(2)))?;
        }
        Ok(())
    }
}

fn is_ours(peer: &str) -> bool {
    peer.starts_with(FREESTONE) || peer == FREESTONE_PRELOADED
}

/// A row a subject, a dot an allocator, on a logarithmic scale of ratios to glibc.
fn dots(path: &Path, title: &str, subjects: &[&Subject], (figure, least): (Figure, f64)) -> Done {
    let peers = names(subjects, |peer| ![FLOOR, GLIBC].contains(&peer));
    let value = |it: &Subject, peer: &str| Some(it.ratio(peer, GLIBC, figure, least)?.median);
    let has_any = |it: &&&Subject| peers.iter().any(|peer| value(it, peer).is_some());
    let rows: Vec<_> = subjects.iter().filter(has_any).collect();
    let Some(scale) = Scale::of(rows.iter().flat_map(|it| peers.iter().filter_map(|peer| value(it, peer)))) else {
        return Ok(());
    };
    let height = HEAD + FOOT + ROW * (rows.len().max(peers.len() + 1) as i32);
    let area = SVGBackend::new(path, (WIDTH, height as u32)).into_drawing_area();
    heading(&area, title)?;
    scale.draw(&area, HEAD + ROW * rows.len() as i32)?;
    for (place, subject) in (0..).zip(&rows) {
        let y = HEAD + ROW * place + ROW / 2;
        label(&area, &subject.name, (LEFT - 10, y), HPos::Right)?;
        area.draw(&PathElement::new([(scale.pixels.start, y), (scale.pixels.end, y)], TEXT.mix(0.2)))?;
        // Ours last, on top of the others.
        let (ours, others): (Vec<_>, Vec<_>) = peers.iter().partition(|peer| is_ours(peer));
        for peer in others.into_iter().chain(ours) {
            let Some(value) = value(subject, peer) else { continue };
            Look::of(peer).draw(&area, (scale.place(value), y))?;
        }
    }
    legend(&area, &peers)?;
    area.present()?;
    Ok(())
}

/// A logarithmic axis from left to right.
struct Scale {
    values: Range<f64>,
    pixels: Range<i32>,
}

impl Scale {
    /// Ratios beyond these are drawn at the edge: a hundredth or a hundredfold is as good as any more.
    const LIMITS: [f64; 2] = [0.01, 20.0];
    const MARKS: [f64; 11] = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0];

    fn of(values: impl Iterator<Item = f64>) -> Option<Self> {
        let [least, most] = Self::LIMITS;
        let (low, high) = values.fold((1.0f64, 1.0f64), |(low, high), it| (low.min(it), high.max(it)));
        let range = (low * 0.9).max(least)..(high * 1.1).min(most);
        (low < high).then_some(Self { values: range, pixels: LEFT..WIDTH as i32 - LEGEND })
    }

    fn place(&self, value: f64) -> i32 {
        let Range { start, end } = self.values;
        let part = (value.clamp(start, end) / start).ln() / (end / start).ln();
        self.pixels.start + (part * f64::from(self.pixels.end - self.pixels.start)).round() as i32
    }

    fn draw(&self, area: &Area, bottom: i32) -> Done {
        for mark in Self::MARKS.into_iter().filter(|mark| self.values.contains(mark)) {
            let x = self.place(mark);
            let line = if mark == 1.0 { TEXT.stroke_width(2) } else { TEXT.mix(0.35).stroke_width(1) };
            area.draw(&PathElement::new([(x, HEAD), (x, bottom)], line))?;
            label(area, &mark.to_string(), (x, bottom + 14), HPos::Center)?;
        }
        Ok(())
    }
}

/// Throughput by threads, of the pairs that run on one to four of them.
fn scaling(path: &Path, results: &Results) -> Done {
    let is_step = |it: &&Subject| it.name.starts_with("pairs-") && it.name.ends_with('t');
    let subjects: Vec<_> = results.subjects.iter().filter(is_step).collect();
    if subjects.len() < 2 {
        return Ok(());
    }
    let rate = |it: &Subject, peer: &str| Some((it.threads as f64, 1e3 / it.column(peer)?.estimate(Sample::wall).median));
    let line = |peer: &str| subjects.iter().filter_map(|it| rate(it, peer)).collect();
    let lines: Vec<(&str, Vec<_>)> = names(&subjects, |_| true).into_iter().map(|peer| (peer, line(peer))).collect();
    let title = "Pairs of malloc and free of 64 B, by threads (more is better)";
    chart(path, title, ["threads", "million pairs a second"], &lines, Marks::EachValue)
}

/// Resident size over time, from the start of the process.
fn over_time(path: &Path, subject: &Subject) -> Done {
    let line = |points: &[[u64; 2]]| points.iter().map(|&[ms, kib]| (ms as f64, kib as f64 / 1024.0)).collect();
    let drawn = subject.columns.iter().filter(|it| !it.timeline.is_empty());
    let lines: Vec<(&str, Vec<_>)> = drawn.map(|it| (&*it.peer, line(&it.timeline))).collect();
    let title = format!("Resident size over time: {}", subject.name);
    chart(path, &title, ["milliseconds", "MiB"], &lines, Marks::None)
}

/// Whether the values of a line are marked.
#[derive(PartialEq, Eq)]
enum Marks {
    EachValue,
    None,
}

fn chart(path: &Path, title: &str, [x, y]: [&str; 2], lines: &[(&str, Vec<(f64, f64)>)], marks: Marks) -> Done {
    let area = SVGBackend::new(path, (WIDTH, 480)).into_drawing_area();
    heading(&area, title)?;
    let most = |of: fn(&(f64, f64)) -> f64| lines.iter().flat_map(|(_, line)| line).map(of).fold(0.0, f64::max);
    let first = if marks == Marks::EachValue { 0.9 } else { 0.0 };
    let inner = area.margin(HEAD, 6, 10, LEGEND);
    let mut chart = ChartBuilder::on(&inner)
        .x_label_area_size(44)
        .y_label_area_size(64)
        .build_cartesian_2d(first..most(|it| it.0) * 1.02, 0.0..most(|it| it.1) * 1.05)?;
    let mut mesh = chart.configure_mesh();
    let digits = |it: &f64| if it.fract() == 0.0 { format!("{it:.0}") } else { String::new() };
    mesh.x_desc(x).y_desc(y).label_style(font(13)).axis_desc_style(font(13)).axis_style(TEXT);
    mesh.bold_line_style(TEXT.mix(0.25))
        .light_line_style(TRANSPARENT)
        .x_labels(8)
        .y_labels(8)
        .x_label_formatter(&digits)
        .y_label_formatter(&|it| format!("{it:.0}"))
        .draw()?;
    let (ours, others): (Vec<_>, Vec<_>) = lines.iter().partition(|(peer, _)| is_ours(peer));
    for (peer, line) in others.into_iter().chain(ours) {
        let look = Look::of(peer);
        let width = if is_ours(peer) { 3 } else { 2 };
        let colour = look.colour.mix(if look.fill == Fill::Full { 1.0 } else { 0.55 });
        chart.draw_series(LineSeries::new(line.iter().copied(), colour.stroke_width(width)))?;
        if marks == Marks::EachValue {
            chart.draw_series(line.iter().map(|&point| Circle::new(point, look.size, look.colour.filled())))?;
        }
    }
    let peers: Vec<_> = lines.iter().map(|(peer, _)| *peer).collect();
    legend(&area, &peers)?;
    area.present()?;
    Ok(())
}

/// The allocators of some subjects, in order.
fn names<'a>(subjects: &[&'a Subject], wanted: impl Fn(&str) -> bool) -> Vec<&'a str> {
    let mut names: Vec<&str> = Vec::new();
    for column in subjects.iter().flat_map(|it| it.sound()) {
        if wanted(&column.peer) && !names.contains(&&*column.peer) {
            names.push(&column.peer);
        }
    }
    names
}

fn heading(area: &Area, title: &str) -> Done {
    area.draw(&Text::new(title.to_string(), (LEFT, 22), font(17).pos(Pos::new(HPos::Left, VPos::Center))))?;
    Ok(())
}

fn legend(area: &Area, peers: &[&str]) -> Done {
    let x = WIDTH as i32 - LEGEND + 24;
    for (place, peer) in (0..).zip(peers) {
        let y = HEAD + ROW * place + ROW / 2;
        Look::of(peer).draw(area, (x, y))?;
        label(area, peer, (x + 14, y), HPos::Left)?;
    }
    Ok(())
}

fn label(area: &Area, text: &str, place: (i32, i32), side: HPos) -> Done {
    area.draw(&Text::new(text.to_string(), place, font(13).pos(Pos::new(side, VPos::Center))))?;
    Ok(())
}

fn font(size: i32) -> TextStyle<'static> {
    ("sans-serif", size).into_font().color(&TEXT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_lies_between_its_neighbours() {
        let scale = Scale::of([0.5, 2.0].into_iter()).unwrap();
        assert!(scale.place(0.5) < scale.place(1.0) && scale.place(1.0) < scale.place(2.0));
        assert_eq!((scale.place(1e-9), scale.place(1e9)), (scale.pixels.start, scale.pixels.end));
        assert!(Scale::of([].into_iter()).is_none());
    }
}
