//! A plot of a few lines, written as SVG: axes, ticks, labels, and a name beside each line.
//!
//! Not a plotting library: the horizontal axis is always logarithmic, and the picture has one size. Colours of
//! text and frame come from the style sheet, which follows the reader's light or dark scheme; a document shows
//! the picture with `![...](...svg)`.

use std::fmt::Write as _;

/// What is drawn.
pub(super) struct Plot<'a> {
    pub(super) title: &'a str,
    /// Each with its unit.
    pub(super) x_label: &'a str,
    pub(super) y_label: &'a str,
    /// Whether the vertical axis is logarithmic; else it begins at 0.
    pub(super) log_y: bool,
    pub(super) lines: &'a [Line],
}

/// One line: its name, and its points from left to right. Coordinates are above 0.
pub(super) struct Line {
    pub(super) name: &'static str,
    pub(super) points: Vec<(f64, f64)>,
}

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 400.0;
/// The frame's edges: room for labels at the left and below, for the title above.
const LEFT: f64 = 70.0;
const RIGHT: f64 = WIDTH - 20.0;
const TOP: f64 = 46.0;
const BOTTOM: f64 = HEIGHT - 56.0;

/// Told apart by readers who see red and green as one, and on white as on black.
const COLORS: [&str; 3] = ["#2f81f7", "#d9822b", "#8957e5"];

const STYLE: &str = "text{font:13px system-ui,sans-serif;fill:#24292f}.title{font-size:15px;font-weight:600}\
.grid{stroke:#8c959f;stroke-opacity:.35}.line{fill:none;stroke-width:2}\
@media(prefers-color-scheme:dark){text{fill:#e6edf3}}";

/// A range of values laid over a range of the picture.
struct Axis {
    log: bool,
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

impl Axis {
    /// Whole powers of ten around the values, or from 0 to a round number above them.
    fn around(values: impl Iterator<Item = f64>, log: bool, from: f64, to: f64) -> Self {
        let (low, high) = values
            .fold((f64::MAX, f64::MIN_POSITIVE), |(low, high), value| (low.min(value), high.max(value)));
        let (low, high) = if log {
            (low.log10().floor(), high.log10().ceil())
        } else {
            let step = round_step(high);
            (0.0, (high / step).ceil() * step)
        };
        Self { log, low, high: if high > low { high } else { low + 1.0 }, from, to }
    }

    fn at(&self, value: f64) -> f64 {
        let value = if self.log { value.log10() } else { value };
        self.from + (value - self.low) / (self.high - self.low) * (self.to - self.from)
    }

    fn ticks(&self) -> Vec<f64> {
        let step = if self.log { 1.0 } else { round_step(self.high) };
        let mut ticks = Vec::new();
        let mut tick = self.low;
        while tick <= self.high + step / 2.0 {
            ticks.push(if self.log { 10_f64.powf(tick) } else { tick });
            tick += step;
        }
        ticks
    }
}

/// 1, 2 or 5 times a power of ten, so that `high` takes three to six of them.
fn round_step(high: f64) -> f64 {
    let power = 10_f64.powf((high / 5.0).log10().floor());
    let factor = [1.0, 2.0, 5.0].into_iter().find(|factor| high / (factor * power) <= 6.0);
    factor.unwrap_or(10.0) * power
}

/// The picture as text, ending with a line break.
pub(super) fn svg(plot: &Plot<'_>) -> String {
    let points = || plot.lines.iter().flat_map(|line| line.points.iter().copied());
    let x = Axis::around(points().map(|(x, _)| x), true, LEFT, RIGHT);
    let y = Axis::around(points().map(|(_, y)| y), plot.log_y, BOTTOM, TOP);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\">\n\
         <title>{0}</title>\n<style>{STYLE}</style>\n<text class=\"title\" x=\"{LEFT}\" y=\"26\">{0}</text>\n",
        escaped(plot.title)
    );
    for tick in x.ticks() {
        let (at, label) = (x.at(tick), power_of_ten(tick));
        let _ = writeln!(svg, "<path class=\"grid\" d=\"M{at:.1} {TOP}V{BOTTOM}\"/>");
        let _ = writeln!(
            svg,
            "<text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{label}</text>",
            BOTTOM + 18.0
        );
    }
    for tick in y.ticks() {
        let (at, label) = (y.at(tick), format!("{tick:.0}"));
        let _ = writeln!(svg, "<path class=\"grid\" d=\"M{LEFT} {at:.1}H{RIGHT}\"/>");
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>",
            LEFT - 8.0,
            at + 4.0
        );
    }
    let (middle, center) = (f64::midpoint(LEFT, RIGHT), f64::midpoint(TOP, BOTTOM));
    let label = "text-anchor=\"middle\"";
    let _ = writeln!(
        svg,
        "<text x=\"{middle}\" y=\"{}\" {label}>{}</text>",
        HEIGHT - 14.0,
        escaped(plot.x_label)
    );
    let turned = format!("transform=\"translate(18 {center}) rotate(-90)\" {label}");
    let _ = writeln!(svg, "<text {turned}>{}</text>", escaped(plot.y_label));
    for (index, line) in plot.lines.iter().enumerate() {
        draw(&mut svg, line, index, &x, &y);
    }
    svg.push_str("</svg>\n");
    svg
}

fn draw(svg: &mut String, line: &Line, index: usize, x: &Axis, y: &Axis) {
    let color = COLORS[index % COLORS.len()];
    let places: Vec<(f64, f64)> = line.points.iter().map(|&(px, py)| (x.at(px), y.at(py))).collect();
    let path: Vec<String> = places.iter().map(|(px, py)| format!("{px:.1},{py:.1}")).collect();
    let _ = writeln!(svg, "<polyline class=\"line\" stroke=\"{color}\" points=\"{}\"/>", path.join(" "));
    for (px, py) in places {
        let _ = writeln!(svg, "<circle cx=\"{px:.1}\" cy=\"{py:.1}\" r=\"3.5\" fill=\"{color}\"/>");
    }
    // The names stand in a corner, one below the other: beside their lines they would run into each other.
    let row = TOP + 20.0 + 20.0 * f64::from(u32::try_from(index).unwrap_or(0));
    let _ = writeln!(svg, "<path class=\"line\" stroke=\"{color}\" d=\"M{} {row}h24\"/>", LEFT + 16.0);
    let _ = writeln!(svg, "<text x=\"{}\" y=\"{}\">{}</text>", LEFT + 48.0, row + 4.0, escaped(line.name));
}

/// `1000` as 10 with a raised 3.
fn power_of_ten(value: f64) -> String {
    let digits = ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'];
    let exponent = format!("{:.0}", value.log10());
    let raised = exponent.chars().filter_map(|digit| digits.get(digit.to_digit(10)? as usize));
    std::iter::once("10".to_owned()).chain(raised.map(char::to_string)).collect()
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

#[cfg(test)]
mod tests;
