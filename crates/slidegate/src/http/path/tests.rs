use proptest::prelude::*;

use super::*;
use crate::http::samples::{Clocked, limiter};
use crate::{Policy, RequestFacts};

const STRICT: PathRules = PathRules { merge_slashes: true, trailing_slash: TrailingSlash::Strict };

const LITERAL: PathRules = PathRules { merge_slashes: false, trailing_slash: TrailingSlash::Strict };

fn normal(path: &str) -> String {
    normalize(path, &PathRules::default()).unwrap().into_owned()
}

fn by(rules: &PathRules, path: &str) -> String {
    normalize(path, rules).unwrap().into_owned()
}

// R146: /%61dmin, and %2f beside %2F, were paths of their own, each with a fresh quota.
#[test]
fn encoding_is_no_way_around_a_limit() {
    for spelling in ["/login", "/%6cogin", "/%6Cogin", "/%6c%6f%67%69%6e"] {
        assert_eq!(normal(spelling), "/login");
    }
    assert_eq!(normal("/a@b/c:d"), normal("/a%40b/c%3ad"));
    assert_eq!(normal("/caf%C3%A9"), "/café");
    assert_eq!(normal("/caf%c3%a9"), normal("/café"));
    assert_eq!(normal("/a%20b"), "/a b");
}

// R146: an encoded slash is data, and separates nothing.
#[test]
fn an_encoded_slash_stays_apart() {
    assert_eq!(normal("/a%2fb"), "/a%2Fb");
    assert_eq!(normal("/a%2Fb"), "/a%2Fb");
    assert_ne!(normal("/a%2Fb"), normal("/a/b"));
    assert_eq!(normal("/a%2F"), "/a%2F");
    assert_eq!(normal("/a%2F..%2Fb"), "/a%2F..%2Fb");
}

// R146: %zz is an error to be answered with 400, never a panic.
#[test]
fn a_percent_sign_needs_two_digits() {
    for (path, at) in
        [("/%zz", 1), ("/abc%", 4), ("/a%4", 2), ("/%41%4g", 4), ("/é%", 3), ("/%é", 1), ("/%+4", 1)]
    {
        let error = normalize(path, &PathRules::default()).unwrap_err();
        assert_eq!(error, PathError::Percent { at }, "{path}");
        assert!(error.to_string().contains(&format!("byte {at} ")));
    }
}

#[test]
fn nothing_is_decoded_twice() {
    assert_eq!(normal("/%2541"), "/%2541");
    assert_eq!(normal("/%252e%252e/a"), "/%252e%252e/a");
    assert_eq!(normal("/100%25"), "/100%25");
}

#[test]
fn bytes_that_are_no_text_stay_encoded_in_upper_case() {
    assert_eq!(normal("/%ff%c3%a9%e2%82"), "/%FFé%E2%82");
    // Overlong forms of `/` and `.` are not text.
    assert_eq!(normal("/%c0%af%c0%ae"), "/%C0%AF%C0%AE");
}

#[test]
fn control_characters_are_refused() {
    for path in ["/%00", "/a%0d%0ab", "/%7F", "/%1f", "/\n", "/a\0b", "/%c2%85"] {
        assert_eq!(normalize(path, &PathRules::default()), Err(PathError::Control), "{path:?}");
    }
}

// R147: a slash at the end was a second path: 14 of 10 requests passed.
#[test]
fn a_trailing_slash_is_ignored_unless_configured() {
    assert_eq!(normal("/r/"), normal("/r"));
    assert_eq!(normal("/r//"), "/r");
    assert_eq!(normal("/"), "/");
    assert_eq!(by(&STRICT, "/r/"), "/r/");
    assert_eq!(by(&STRICT, "/r"), "/r");
    assert_eq!(by(&STRICT, "/r//"), "/r/");
    let unmerged = PathRules { merge_slashes: false, ..PathRules::default() };
    assert_eq!(by(&unmerged, "/r///"), "/r");
    assert_eq!(by(&unmerged, "//"), "/");
}

#[test]
fn slashes_are_merged_unless_configured() {
    assert_eq!(normal("//login"), "/login");
    assert_eq!(normal("/a///b"), "/a/b");
    assert_eq!(normal("//"), "/");
    assert_eq!(by(&LITERAL, "//a///b//"), "//a///b//");
}

#[test]
fn dot_segments_are_resolved_and_never_leave_the_root() {
    for (path, expected) in [
        ("/./login", "/login"),
        ("/a/../login", "/login"),
        ("/a/b/../../login", "/login"),
        ("/../../login", "/login"),
        ("/%2e/login", "/login"),
        ("/a/%2e%2e/login", "/login"),
        ("/a/.%2E/login", "/login"),
        ("/a/%2E./login", "/login"),
        ("/a/..", "/"),
        ("/..", "/"),
        ("/.", "/"),
        ("/a/.", "/a"),
        ("/a//../b", "/b"),
        ("/.well-known/x", "/.well-known/x"),
        ("/...", "/..."),
        ("/a/..b", "/a/..b"),
        ("/a/b..", "/a/b.."),
    ] {
        assert_eq!(normal(path), expected, "{path}");
    }
    assert_eq!(by(&STRICT, "/a/b/.."), "/a/");
    assert_eq!(by(&STRICT, "/a/."), "/a/");
    // Without merging an empty segment is a segment, and `..` takes it.
    assert_eq!(by(&LITERAL, "/a//../b"), "/a/b");
}

// R149: ?x=1 made another path; 100 spellings, one limit.
#[test]
fn the_query_is_left_out() {
    for number in 1..=100 {
        assert_eq!(normal(&format!("/login?x={number}")), "/login");
    }
    assert_eq!(normal("/login#top"), "/login");
    assert_eq!(normal("/login/?next=/%zz"), "/login");
    assert_eq!(normal("?x"), "/");
    // An encoded one is data.
    assert_eq!(normal("/login%3fx"), "/login%3Fx");
    assert_eq!(normal("/login%23x"), "/login%23x");
}

#[test]
fn parameters_stay() {
    assert_eq!(normal("/login;v=1"), "/login;v=1");
    assert_eq!(normal("/login%3bv=1"), "/login;v=1");
}

#[test]
fn case_stays() {
    assert_eq!(normal("/Login"), "/Login");
}

#[test]
fn what_requests_have_instead_of_a_path() {
    assert_eq!(normal(""), "/");
    assert_eq!(normal("*"), "*");
    for path in ["login", "http://a/login", "a:443", "%2Flogin", "*/", "\\login"] {
        assert_eq!(normalize(path, &PathRules::default()), Err(PathError::Relative), "{path}");
    }
}

#[test]
fn a_path_in_normal_form_is_not_copied() {
    for path in ["/", "*", "", "/login", "/login/", "/login?x=1", "/.well-known/a", "/a;b=c/@d/~e"] {
        let normal = normalize(path, &PathRules::default()).unwrap();
        assert!(matches!(normal, Cow::Borrowed(_)), "{path}");
    }
    assert!(matches!(normalize("/login/", &STRICT), Ok(Cow::Borrowed("/login/"))));
    assert!(matches!(normalize("//a//", &LITERAL), Ok(Cow::Borrowed("//a//"))));
}

/// How many of these requests, each of a route and a path, pass a limit of five by this part of the request.
async fn passed(key: &str, requests: impl IntoIterator<Item = (&str, String)>) -> usize {
    let policy = Policy::builder("p").limits("5/h").key(key).build().unwrap();
    let (_, limiter): (_, Clocked) = limiter([policy]);
    let mut passed = 0;
    for (route, raw_path) in requests {
        let facts = RequestFacts {
            method: &http::Method::GET,
            headers: &http::HeaderMap::new(),
            path: &normal(&raw_path),
            query: None,
            host: None,
            route: Some(route),
            path_params: &[],
            client: None,
        };
        let decision = limiter.check_request(&["p".into()], &facts).await.unwrap();
        passed += usize::from(decision.is_allowed());
    }
    passed
}

// R146, R147, R149: fourteen spellings of one path were fourteen quotas.
#[tokio::test]
async fn all_spellings_of_a_path_share_one_counter() {
    let spellings = ["/login", "/%6cogin", "/%6Cogin", "//login", "/./login", "/a/../login", "/login/"];
    let queries = (1..=100).map(|number| format!("/login?x={number}"));
    let all = spellings.map(String::from).into_iter().chain(queries);
    assert_eq!(passed("{path}", all.map(|path| ("/login", path))).await, 5);
}

// R150: keyed by the raw path, each id was a counter of its own.
#[tokio::test]
async fn all_paths_of_a_route_share_one_counter() {
    let users = || (1..=100).map(|id| ("/users/{id}", format!("/users/{id}")));
    assert_eq!(passed("{route}", users()).await, 5);
    assert_eq!(passed("{path}", users()).await, 100);
}

fn rules() -> impl Strategy<Value = PathRules> {
    (any::<bool>(), any::<bool>()).prop_map(|(merge_slashes, strict)| PathRules {
        merge_slashes,
        trailing_slash: if strict { TrailingSlash::Strict } else { TrailingSlash::Ignore },
    })
}

/// Paths made of the pieces that mean something to somebody.
fn paths() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        3 => prop::sample::select(vec![
            "/", "/", "/", ".", "..", "%2e", "%2E", "%2f", "%25", "%41", "%ff", "%c3", "%a9", "é", "a", "b",
            ";", "?", "#", "%3F", "%zz", "%", "\\", "*", "%00", " ", "%20",
        ]).prop_map(String::from),
        1 => any::<String>(),
    ];
    prop::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

proptest! {
    // Any text is a path or an error, and a normal form is its own normal form, found without a copy where
    // it is ASCII without anything encoded.
    #[test]
    fn normal_forms_are_stable(raw in prop_oneof![paths(), paths().prop_map(|path| format!("/{path}"))], rules in rules()) {
        if let Ok(once) = normalize(&raw, &rules) {
            let twice = normalize(&once, &rules).unwrap();
            prop_assert_eq!(&twice, &once);
            if once.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'%') {
                prop_assert!(matches!(twice, Cow::Borrowed(_)));
            }
        }
    }

    // A normal form starts at the root and has no dot segment, no control character and no query; and no
    // empty segment but the last, where slashes are merged.
    #[test]
    fn normal_forms_have_the_shape_that_routes_rely_on(path in paths(), rules in rules()) {
        let Ok(normal) = normalize(&format!("/{path}"), &rules).map(Cow::into_owned) else {
            return Ok(());
        };
        prop_assert!(normal.starts_with('/'));
        prop_assert!(!normal.contains(['?', '#']) && !normal.contains(char::is_control));
        prop_assert!(normal[1..].split('/').all(|segment| !matches!(segment, "." | "..")));
        prop_assert!(!(rules.merge_slashes && normal.contains("//")));
        let ignored = rules.trailing_slash == TrailingSlash::Ignore;
        prop_assert!(!(ignored && normal.len() > 1 && normal.ends_with('/')));
    }

    // Encoding any character of a path but a slash changes nothing.
    #[test]
    fn encoding_a_character_changes_nothing(path in "/[a-z0-9._~;@:é /-]{0,20}", at in any::<prop::sample::Index>(), rules in rules()) {
        let characters: Vec<char> = path.chars().collect();
        let at = at.index(characters.len());
        prop_assume!(characters[at] != '/');
        let spelled: String = characters.iter().enumerate().map(|(index, character)| {
            if index != at {
                return character.to_string();
            }
            let mut buffer = [0; 4];
            character.encode_utf8(&mut buffer).bytes().map(|byte| format!("%{byte:02x}")).collect()
        }).collect();
        prop_assert_eq!(normalize(&spelled, &rules), normalize(&path, &rules));
    }
}
