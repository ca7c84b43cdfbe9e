use super::*;
use crate::config::Upstream;
use proptest::prelude::*;
use std::time::Duration;

const STRICT: PathRules = PathRules { merge_slashes: true, trailing_slash: TrailingSlash::Strict };

fn route(path: PathMatch) -> Route {
    Route {
        path,
        methods: Vec::new(),
        host: None,
        policies: Vec::new(),
        upstream: Upstream::Echo,
        timeout: Duration::from_secs(30),
    }
}

fn exact(path: &str) -> PathMatch {
    PathMatch::Exact(path.into())
}

fn prefix(path: &str) -> PathMatch {
    PathMatch::Prefix(path.into())
}

fn pattern(path: &str) -> PathMatch {
    PathMatch::Pattern(path.into())
}

/// Whether a single route takes a path, as a request would send it.
fn takes(path: PathMatch, rules: PathRules, raw: &str) -> bool {
    let router = Router::new(&[route(path)], rules).unwrap();
    let path = router.normalize(raw).unwrap();
    router.find(&Method::GET, None, None, &path).is_ok()
}

fn fault(path: PathMatch) -> String {
    Router::new(&[route(path)], PathRules::default()).unwrap_err().to_string()
}

#[test]
fn the_first_route_in_the_order_of_the_file_is_taken() {
    let routes = [route(pattern("/a/{x}")), route(exact("/a/b")), route(prefix("/"))];
    let router = Router::new(&routes, PathRules::default()).unwrap();
    let taken = |path| router.find(&Method::GET, None, None, path).unwrap().text;
    assert_eq!(taken("/a/b"), "/a/{x}");
    assert_eq!(taken("/a/b/c"), "/");
    assert_eq!(taken("/"), "/");
}

#[test]
fn a_prefix_takes_what_begins_with_its_text() {
    let rules = PathRules::default();
    for taken in ["/api/", "/api/x", "/api/x/y", "/api", "//api//x", "/%61pi/x", "/api/."] {
        assert!(takes(prefix("/api/"), rules, taken), "{taken}");
    }
    for left in ["/apix", "/ap", "/", "/x/api/", "/API/"] {
        assert!(!takes(prefix("/api/"), rules, left), "{left}");
    }
    assert!(takes(prefix("/v"), rules, "/v"));
    assert!(takes(prefix("/v"), rules, "/version/1"));
    assert!(!takes(prefix("/v"), rules, "/x"));
}

#[test]
fn a_trailing_slash_tells_paths_apart_only_by_configuration() {
    let lenient = PathRules::default();
    for (configured, raw) in [("/r", "/r/"), ("/r/", "/r"), ("/r", "/r"), ("/r/", "/r/"), ("/r", "/r//")] {
        assert!(takes(exact(configured), lenient, raw), "{configured} {raw}");
        assert_eq!(takes(exact(configured), STRICT, raw), configured == raw, "{configured} {raw}");
    }
    assert!(!takes(prefix("/r/"), STRICT, "/r"));
    assert!(takes(prefix("/r/"), STRICT, "/r/"));
    assert!(takes(pattern("/{x}/"), lenient, "/r"));
    assert!(!takes(pattern("/{x}/"), STRICT, "/r"));
    assert!(takes(pattern("/{x}/"), STRICT, "/r/"));
}

#[test]
fn configured_paths_are_read_like_those_of_requests() {
    let rules = PathRules::default();
    assert!(takes(exact("/caf%C3%A9"), rules, "/café"));
    assert!(takes(exact("/a/../login"), rules, "/login"));
    assert!(takes(prefix("//api/"), rules, "/api/x"));
    assert!(takes(pattern("/%61/{id}"), rules, "/a/1"));
}

#[test]
fn a_parameter_is_one_segment_that_is_not_empty() {
    let routes = [route(pattern("/users/{id}/files/{name}"))];
    let router = Router::new(&routes, STRICT).unwrap();
    let found = router.find(&Method::GET, None, None, "/users/7/files/a%2Fb").unwrap();
    assert_eq!(found.params.as_slice(), [("id", "7"), ("name", "a%2Fb")]);
    for left in ["/users/7", "/users/7/files/", "/users//files/a", "/users/7/files/a/b", "/x/7/files/a"] {
        assert!(router.find(&Method::GET, None, None, left).is_err(), "{left}");
    }
}

#[test]
fn other_methods_are_told_apart_from_no_route() {
    let of = |methods: &[Method], path| Route { methods: methods.to_vec(), ..route(path) };
    let routes = [of(&[Method::POST], exact("/a")), of(&[Method::GET, Method::POST], prefix("/a"))];
    let router = Router::new(&routes, PathRules::default()).unwrap();
    let methods = |path| match router.find(&Method::DELETE, None, None, path) {
        Err(Refusal::Method { allowed }) => allowed,
        other => panic!("{other:?}"),
    };
    assert_eq!(methods("/a"), [Method::POST, Method::GET, Method::HEAD]);
    assert!(matches!(router.find(&Method::DELETE, None, None, "/b"), Err(Refusal::NoRoute)));
    assert!(router.find(&Method::HEAD, None, None, "/ab").is_ok());
}

#[test]
fn a_preflight_is_taken_by_options_and_by_what_it_announces() {
    let of = |method, path| Route { methods: vec![method], ..route(exact(path)) };
    let routes = [of(Method::POST, "/a"), of(Method::OPTIONS, "/b"), of(Method::GET, "/a")];
    let router = Router::new(&routes, PathRules::default()).unwrap();
    let taken = |announced, path| {
        let found = router.find(&Method::OPTIONS, Some(&announced), None, path).ok()?;
        Some(found.route.methods[0].clone())
    };
    assert_eq!(taken(Method::POST, "/a"), Some(Method::POST));
    assert_eq!(taken(Method::GET, "/a"), Some(Method::GET));
    assert_eq!(taken(Method::DELETE, "/a"), None);
    assert_eq!(taken(Method::POST, "/b"), Some(Method::OPTIONS));
}

#[test]
fn a_route_of_a_host_takes_no_request_without_one() {
    let of = |host: &str| Route { host: Some(host.into()), ..route(prefix("/")) };
    let takes = |wanted: &str, host: Option<&str>| {
        let router = Router::new(&[of(wanted)], PathRules::default()).unwrap();
        router.find(&Method::GET, None, host, "/").is_ok()
    };
    assert!(takes("a.example", Some("a.example")));
    assert!(!takes("a.example", Some("b.a.example")));
    assert!(!takes("a.example", None));
    assert!(takes("*.a.example", Some("b.a.example")));
    assert!(takes("*.a.example", Some("c.b.a.example")));
    assert!(!takes("*.a.example", Some("a.example")));
    assert!(!takes("*.a.example", Some(".a.example")));
    assert!(!takes("*.a.example", Some("ba.example")));
}

#[test]
fn a_path_that_can_not_be_used_is_refused_with_what_is_wrong() {
    assert!(fault(exact("login")).contains("starts with /"));
    assert!(fault(exact("/%zz")).contains("byte 1"));
    assert!(fault(exact("/a?x=1")).contains("must end before the ?"));
    assert!(fault(prefix("/a#b")).contains("must end before the #"));
    for bad in ["/{}", "/{a", "/a}", "/x{a}", "/{a}x", "/{a-b}", "/{*rest}", "/{{a}}"] {
        assert!(fault(pattern(bad)).contains("one {name}"), "{bad}: {}", fault(pattern(bad)));
    }
    assert!(fault(pattern("/{a}/{a}")).contains("two parameters called \"a\""));
}

/// A little language of path pieces, in which the spellings that matter are common.
fn spelled() -> impl Strategy<Value = String> {
    const PIECES: [&str; 13] =
        ["/", "//", "a", "b", "%61", ".", "..", "%2e", "%2F", "/a", "{x}", "%C3%A9", "é"];
    prop::collection::vec(prop::sample::select(&PIECES[..]), 0..8)
        .prop_map(|pieces| format!("/{}", pieces.concat()))
}

proptest! {
    /// An exact route takes the path that it is written as, and every path with the same normal form.
    #[test]
    fn exact_means_the_same_normal_form(configured in spelled(), raw in spelled(), strict: bool) {
        let rules = if strict { STRICT } else { PathRules::default() };
        let same = path::normalize(&configured, &rules) == path::normalize(&raw, &rules);
        prop_assert!(takes(exact(&configured), rules, &configured));
        prop_assert_eq!(takes(exact(&configured), rules, &raw), same);
    }

    /// Adding segments to a path never takes it out of a prefix that ends with a slash.
    #[test]
    fn what_lies_below_a_prefix_stays_below(configured in spelled(), below in "[a-z]{1,3}", strict: bool) {
        let rules = if strict { STRICT } else { PathRules::default() };
        let configured = format!("{configured}/");
        let path = format!("{configured}{below}");
        prop_assert!(takes(prefix(&configured), rules, &path));
    }

    /// No path, method or host makes the router panic, and a match has all parameters of its pattern.
    #[test]
    fn any_request_is_routed_or_refused(raw in "\\PC{0,40}", host in prop::option::of("\\PC{0,20}")) {
        let routes = [route(pattern("/{a}/b/{c}")), route(exact("/x")), route(prefix("/p/"))];
        let router = Router::new(&routes, PathRules::default()).unwrap();
        if let Ok(path) = router.normalize(&raw)
            && let Ok(found) = router.find(&Method::GET, None, host.as_deref(), &path)
            && found.text.contains('{')
        {
            prop_assert_eq!(found.params.len(), 2);
        }
    }
}
