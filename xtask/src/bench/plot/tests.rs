use super::*;

fn plot(log_y: bool, points: &[(f64, f64)]) -> String {
    let lines = [Line { name: "a < b", points: points.to_vec() }];
    svg(&Plot { title: "cost & keys", x_label: "keys", y_label: "time (ns)", log_y, lines: &lines })
}

fn count(svg: &str, what: &str) -> usize {
    svg.matches(what).count()
}

#[test]
fn a_picture_has_its_title_both_labels_the_name_of_each_line_and_all_points() {
    let svg = plot(true, &[(1e3, 200.0), (1e5, 300.0), (1e7, 800.0)]);
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
    let svg = plot(true, &[(1e3, 100.0), (1e7, 1000.0)]);
    assert!(svg.contains(&format!("points=\"{LEFT:.1},{BOTTOM:.1} {RIGHT:.1},{top:.1}\"")), "{svg}");
    // From 0, so that a flat line looks flat: half of the highest tick is half of the height.
    let svg = plot(false, &[(10.0, 250.0), (100.0, 500.0)]);
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
    let svg = plot(true, &[(1000.0, 100.0)]);
    assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
}

#[test]
fn a_reader_of_a_dark_page_gets_light_text() {
    assert!(plot(true, &[(1.0, 1.0)]).contains("@media(prefers-color-scheme:dark){text{fill:"));
}
