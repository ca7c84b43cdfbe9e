//! Plots of a few lines, written as SVG: axes, ticks, labels, and the names of the lines.
//!
//! Not a plotting library: each plot has one size, and colours of text and frame come from the style sheet, which
//! follows the reader's light or dark scheme; a document shows the picture with `![...](...svg)`. A crate of its
//! own because both the server's `bench` and xtask draw, and neither should build the other.
//!
//! Numbers become places in a picture here, so this is floating point all over; nothing is ever decided by it.

use std::fmt::Write as _;

/// What is drawn.
#[derive(Debug)]
pub struct Plot<'a> {
    /// Above the picture.
    pub title: &'a str,
    /// Below the horizontal axis: what it counts, with its unit.
    pub x_label: &'a str,
    /// Beside the vertical axis, likewise.
    pub y_label: &'a str,
    /// Of the horizontal axis.
    pub x_scale: Scale,
    /// Of the vertical axis.
    pub y_scale: Scale,
    /// The lines, at most three: each has a colour of its own.
    pub lines: &'a [Line],
}

/// How values are laid along an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// From 0.
    Linear,
    /// From a power of ten to a power of ten; values are above 0.
    Log,
}

/// One line: its name, and its points from left to right. No coordinate is negative.
#[derive(Debug)]
pub struct Line {
    /// Shown beside a piece of the line.
    pub name: &'static str,
    /// Horizontal and vertical values.
    pub points: Vec<(f64, f64)>,
}

/// Lines of more points are drawn without a dot on each: the dots would hide the line.
const DOTS_MAX: usize = 40;

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 420.0;
/// The frame's edges: room for labels at the left and below. Above it stand the title and the names of the lines,
/// one below the other, where no line can run through them.
const LEFT: f64 = 70.0;
const RIGHT: f64 = WIDTH - 20.0;
const BOTTOM: f64 = HEIGHT - 56.0;
const NAMES_TOP: f64 = 48.0;
const NAME_HEIGHT: f64 = 20.0;

/// Told apart by readers who see red and green as one, and on white as on black.
const COLORS: [&str; 3] = ["#2f81f7", "#d9822b", "#8957e5"];

const STYLE: &str = "text{font:13px system-ui,sans-serif;fill:#24292f}.title{font-size:15px;font-weight:600}\
.grid{stroke:#8c959f;stroke-opacity:.35}.line{fill:none;stroke-width:2}\
@media(prefers-color-scheme:dark){text{fill:#e6edf3}}";

/// A range of values laid over a range of the picture.
struct Axis {
    scale: Scale,
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

impl Axis {
    /// Whole powers of ten around the values, or from 0 to a round number above them.
    fn around(values: impl Iterator<Item = f64>, scale: Scale, from: f64, to: f64) -> Self {
        let (low, high) = values
            .fold((f64::MAX, f64::MIN_POSITIVE), |(low, high), value| (low.min(value), high.max(value)));
        let step = round_step(high);
        let round = (0.0, (high / step).ceil() * step);
        let (low, high) = match scale {
            // A plot without points has an empty frame.
            Scale::Log if low <= high => (low.log10().floor(), high.log10().ceil()),
            Scale::Log | Scale::Linear => round,
        };
        Self { scale, low, high: if high > low { high } else { low + 1.0 }, from, to }
    }

    fn at(&self, value: f64) -> f64 {
        let value = if self.scale == Scale::Log { value.log10() } else { value };
        self.from + (value - self.low) / (self.high - self.low) * (self.to - self.from)
    }

    fn ticks(&self) -> Vec<f64> {
        let step = if self.scale == Scale::Log { 1.0 } else { round_step(self.high) };
        let ticks = (0..=20_u8).map(|index| self.low + step * f64::from(index));
        let inside = ticks.take_while(|tick| *tick <= self.high + step / 2.0);
        inside.map(|tick| if self.scale == Scale::Log { 10_f64.powf(tick) } else { tick }).collect()
    }
}

/// 1, 2 or 5 times a power of ten, so that `high` takes three to six of them.
fn round_step(high: f64) -> f64 {
    let power = 10_f64.powf((high / 5.0).log10().floor());
    let factor = [1.0, 2.0, 5.0].into_iter().find(|factor| high / (factor * power) <= 6.0);
    factor.unwrap_or(10.0) * power
}

/// The picture as text, ending with a line break.
pub fn svg(plot: &Plot<'_>) -> String {
    column(std::slice::from_ref(plot))
}

/// Several plots in one picture, one below the other, as text that ends with a line break.
pub fn column(plots: &[Plot<'_>]) -> String {
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {}\" role=\"img\">\n",
        height(plots.len())
    );
    let titles: Vec<String> = plots.iter().map(|plot| escaped(plot.title)).collect();
    let _ = writeln!(svg, "<title>{}</title>\n<style>{STYLE}</style>", titles.join("; "));
    for (index, plot) in plots.iter().enumerate() {
        if index > 0 {
            let _ = writeln!(svg, "<g transform=\"translate(0 {})\">", height(index));
        }
        frame_and_lines(&mut svg, plot);
        if index > 0 {
            svg += "</g>\n";
        }
    }
    svg + "</svg>\n"
}

/// Of so many plots.
fn height(plots: usize) -> f64 {
    HEIGHT * f64::from(u32::try_from(plots).unwrap_or(0))
}

fn frame_and_lines(svg: &mut String, plot: &Plot<'_>) {
    let points = || plot.lines.iter().flat_map(|line| line.points.iter().copied());
    let top = row(plot.lines.len());
    let x = Axis::around(points().map(|(x, _)| x), plot.x_scale, LEFT, RIGHT);
    let y = Axis::around(points().map(|(_, y)| y), plot.y_scale, BOTTOM, top);
    text(svg, LEFT, 26.0, "class=\"title\"", plot.title);
    for (tick, at) in x.ticks().into_iter().map(|tick| (tick, x.at(tick))) {
        let _ = writeln!(svg, "<path class=\"grid\" d=\"M{at:.1} {top}V{BOTTOM}\"/>");
        let name = if x.scale == Scale::Log { power_of_ten(tick) } else { plain(tick) };
        text(svg, at, BOTTOM + 18.0, MIDDLE, &name);
    }
    for (tick, at) in y.ticks().into_iter().map(|tick| (tick, y.at(tick))) {
        let _ = writeln!(svg, "<path class=\"grid\" d=\"M{LEFT} {at:.1}H{RIGHT}\"/>");
        text(svg, LEFT - 8.0, at + 4.0, "text-anchor=\"end\"", &plain(tick));
    }
    text(svg, f64::midpoint(LEFT, RIGHT), HEIGHT - 14.0, MIDDLE, plot.x_label);
    let turned = format!("{MIDDLE} transform=\"translate(18 {}) rotate(-90)\"", f64::midpoint(top, BOTTOM));
    text(svg, 0.0, 0.0, &turned, plot.y_label);
    for (index, line) in plot.lines.iter().enumerate() {
        draw(svg, line, index, &x, &y);
    }
}

fn draw(svg: &mut String, line: &Line, index: usize, x: &Axis, y: &Axis) {
    let color = COLORS[index % COLORS.len()];
    let places: Vec<(f64, f64)> = line.points.iter().map(|&(px, py)| (x.at(px), y.at(py))).collect();
    let path: Vec<String> = places.iter().map(|(px, py)| format!("{px:.1},{py:.1}")).collect();
    let _ = writeln!(svg, "<polyline class=\"line\" stroke=\"{color}\" points=\"{}\"/>", path.join(" "));
    for (px, py) in places.into_iter().filter(|_| line.points.len() <= DOTS_MAX) {
        let _ = writeln!(svg, "<circle cx=\"{px:.1}\" cy=\"{py:.1}\" r=\"3.5\" fill=\"{color}\"/>");
    }
    let middle = row(index);
    let _ = writeln!(svg, "<path class=\"line\" stroke=\"{color}\" d=\"M{LEFT} {middle}h24\"/>");
    text(svg, LEFT + 32.0, middle + 4.0, "", line.name);
}

const MIDDLE: &str = "text-anchor=\"middle\"";

fn text(svg: &mut String, x: f64, y: f64, attributes: &str, text: &str) {
    let _ = writeln!(svg, "<text x=\"{x:.1}\" y=\"{y:.1}\" {attributes}>{}</text>", escaped(text));
}

/// Where the name of a line stands; that of one behind the last is where the frame begins.
fn row(index: usize) -> f64 {
    NAMES_TOP + NAME_HEIGHT * f64::from(u32::try_from(index).unwrap_or(0))
}

/// `1000` as 10 with a raised 3.
fn power_of_ten(value: f64) -> String {
    let digits = ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'];
    let exponent = format!("{:.0}", value.log10());
    let raised = exponent.chars().filter_map(|digit| digits.get(digit.to_digit(10)? as usize));
    let sign = exponent.starts_with('-').then_some('⁻');
    "10".chars().chain(sign).chain(raised.copied()).collect()
}

/// Without needless digits: `200`, `0.5`.
fn plain(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

#[cfg(test)]
mod tests;
