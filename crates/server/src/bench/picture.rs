//! The report as a picture: how slow the slow checks were, and what was admitted when.

use slidegate_plot::{self as plot, Line, Plot, Scale};

use super::report::Report;

impl Report {
    /// As SVG.
    pub(crate) fn svg(&self) -> String {
        let latency = [Line { name: "from the intended start to the answer", points: self.tail.clone() }];
        let step = |index: usize| u32::try_from(index).map_or(0.0, |index| f64::from(index) / 10.0);
        let points = self.admitted_per_100ms.iter().enumerate();
        let points = points.map(|(index, admitted)| (step(index), f64::from(*admitted))).collect();
        let admitted = [Line { name: "all keys together", points }];
        plot::column(&[
            Plot {
                title: "Latency",
                x_label: "one check in so many took longer: 10² is the 99th percentile",
                y_label: "latency (us)",
                x_scale: Scale::Log,
                y_scale: Scale::Log,
                lines: &latency,
            },
            Plot {
                title: "Admitted",
                x_label: "seconds since the start",
                y_label: "checks admitted in 100 ms",
                x_scale: Scale::Linear,
                y_scale: Scale::Linear,
                lines: &admitted,
            },
        ])
    }
}
