use super::*;

const LABELS: Plot<'_> = Plot {
    title: "cost & keys",
    x_label: "keys",
    y_label: "time (ns)",
    x_scale: Scale::Log,
    y_scale: Scale::Log,
    lines: &[],
};

fn plot(y_scale: Scale, points: &[(f64, f64)]) -> String {
    let lines = [Line { name: "a < b", points: points.to_vec() }];
    svg(&Plot { y_scale, lines: &lines, ..LABELS })
}

fn count(svg: &str, what: &str) -> usize {
    svg.matches(what).count()
}

#[test]
fn a_picture_has_its_title_both_labels_the_name_of_each_line_and_all_points() {
    let svg = plot(Scale::Log, &[(1e3, 200.0), (1e5, 300.0), (1e7, 800.0)]);
    for text in
        [">cost &amp; keys<", ">keys<", ">time (ns)<", ">a &lt; b<", ">10³<", ">10⁷<", ">100<", ">1000<"]
    {
        assert!(svg.contains(text), "{text}: {svg}");
    }
    assert_eq!(count(&svg, "<circle"), 3);
    assert_eq!(count(&svg, "<polyline"), 1);
}

#[test]
fn the_axes_reach_around_the_points() {
    let top = row(1);
    let svg = plot(Scale::Log, &[(1e3, 100.0), (1e7, 1000.0)]);
    assert!(svg.contains(&format!("points=\"{LEFT:.1},{BOTTOM:.1} {RIGHT:.1},{top:.1}\"")), "{svg}");
    // From 0, so that a flat line looks flat: half of the highest tick is half of the height.
    let svg = plot(Scale::Linear, &[(10.0, 250.0), (100.0, 500.0)]);
    let middle = f64::midpoint(top, BOTTOM);
    assert!(svg.contains(&format!("points=\"{LEFT:.1},{middle:.1} {RIGHT:.1},{top:.1}\"")), "{svg}");
}

#[test]
fn ticks_are_round_and_few() {
    for (high, step) in [(1.0, 0.2), (54.0, 10.0), (60.0, 10.0), (61.0, 20.0), (499.0, 100.0), (730.0, 200.0)]
    {
        assert!((round_step(high) - step).abs() < 1e-9, "{high}: {}", round_step(high));
    }
}

#[test]
fn one_point_is_drawn_too() {
    let svg = plot(Scale::Log, &[(1000.0, 100.0)]);
    assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
}

#[test]
fn a_reader_of_a_dark_page_gets_light_text() {
    assert!(plot(Scale::Log, &[(1.0, 1.0)]).contains("@media(prefers-color-scheme:dark){text{fill:"));
}

#[test]
fn a_linear_axis_begins_at_0_and_has_plain_numbers() {
    let lines = [Line { name: "admitted", points: vec![(0.5, 400.0), (2.0, 500.0)] }];
    let svg = svg(&Plot { x_scale: Scale::Linear, y_scale: Scale::Linear, lines: &lines, ..LABELS });
    for text in [">0<", ">0.5<", ">1.5<", ">2<", ">500<"] {
        assert!(svg.contains(text), "{text}: {svg}");
    }
}

#[test]
fn powers_below_1_have_their_sign() {
    assert_eq!([0.01, 0.1, 1.0, 1e12].map(power_of_ten), ["10⁻²", "10⁻¹", "10⁰", "10¹²"]);
    assert_eq!([0.01, 0.1, 1.0, 1200.0].map(plain), ["0.01", "0.1", "1", "1200"]);
}

#[test]
fn several_plots_stand_one_below_the_other() {
    let lines = [Line { name: "a", points: vec![(1.0, 1.0)] }];
    let (first, second) =
        (Plot { lines: &lines, ..LABELS }, Plot { title: "second", lines: &lines, ..LABELS });
    let svg = column(&[first, second]);
    assert!(svg.contains(&format!("viewBox=\"0 0 {WIDTH} {}\"", 2.0 * HEIGHT)), "{svg}");
    assert!(svg.contains("<title>cost &amp; keys; second</title>"), "{svg}");
    assert_eq!((count(&svg, "<svg"), count(&svg, "<polyline"), count(&svg, "<g ")), (1, 2, 1));
}

#[test]
fn a_line_of_many_points_has_no_dots_and_a_plot_without_points_is_empty() {
    let many: Vec<_> = (1..=41).map(|x| (f64::from(x), 5.0)).collect();
    assert_eq!(count(&plot(Scale::Log, &many), "<circle"), 0);
    for scale in [Scale::Log, Scale::Linear] {
        let svg = plot(scale, &[]);
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }
}
