use http::{HeaderMap, HeaderValue, Method};
use proptest::prelude::*;

use super::*;
use crate::facts::Client;

fn template(text: &str) -> Template {
    text.parse().unwrap()
}

fn error(text: &str) -> (usize, String) {
    let error = text.parse::<Template>().unwrap_err();
    (error.at, error.to_string())
}

/// The facts of a request that has everything.
fn with_facts<T>(ask: impl FnOnce(&RequestFacts<'_>) -> T) -> T {
    let mut headers = HeaderMap::new();
    for (name, value) in [("x-user", "ann"), ("x-empty", ""), ("cookie", "sid=42; none=")] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    ask(&RequestFacts {
        method: &Method::POST,
        headers: &headers,
        path: "/users/7",
        query: Some("q=a%20b&none="),
        host: Some("example.com"),
        route: Some("/users/{id}"),
        path_params: &[("id", "7")],
        client: Some(Client { address: "2001:db8:1:2:3::4".parse().unwrap(), prefix: 64 }),
    })
}

/// The facts of a request that has nothing.
fn with_nothing<T>(ask: impl FnOnce(&RequestFacts<'_>) -> T) -> T {
    ask(&RequestFacts {
        method: &Method::GET,
        headers: &HeaderMap::new(),
        path: "/",
        query: None,
        host: None,
        route: None,
        path_params: &[],
        client: None,
    })
}

fn text_of(value: Option<Cow<'_, [u8]>>) -> Option<String> {
    Some(String::from_utf8(value?.into_owned()).unwrap())
}

#[test]
fn every_source_has_its_value() {
    for (text, value) in [
        ("{client_ip}", "2001:db8:1:2::/64"),
        ("{path}", "/users/7"),
        ("{method}", "POST"),
        ("{host}", "example.com"),
        ("{route}", "/users/{id}"),
        ("{header:x-user}", "ann"),
        ("{header:X-User}", "ann"),
        ("{cookie:sid}", "42"),
        ("{query:q}", "a b"),
        ("{path:id}", "7"),
    ] {
        let template = template(text);
        assert_eq!(with_facts(|facts| text_of(template.resolve(facts))).unwrap(), value, "{text}");
        assert_eq!(template.to_string(), text);
        assert_eq!(**template.name(), text[1..text.len() - 1]);
        assert!(!template.is_secret());
    }
}

#[test]
fn an_absent_part_is_no_value_and_an_empty_part_is_one() {
    for text in
        ["{client_ip}", "{host}", "{route}", "{header:x-user}", "{cookie:sid}", "{query:q}", "{path:id}"]
    {
        let (bare, among) = (template(text), template(&format!("a {text} b")));
        with_nothing(|facts| assert_eq!((bare.resolve(facts), among.resolve(facts)), (None, None), "{text}"));
    }
    for text in ["{header:x-empty}", "{cookie:none}", "{query:none}"] {
        let (bare, among) = (template(text), template(&format!("a{text}b")));
        with_facts(|facts| {
            assert_eq!(text_of(bare.resolve(facts)).unwrap(), "");
            assert_eq!(text_of(among.resolve(facts)).unwrap(), "ab");
        });
    }
}

#[test]
fn literal_text_stands_around_a_value() {
    let template = template("user-{header:x-user}@home");
    assert_eq!(with_facts(|facts| text_of(template.resolve(facts))).unwrap(), "user-ann@home");
    // Its name is the whole text, so that it is not taken for the bare value.
    assert_eq!(&**template.name(), "user-{header:x-user}@home");
    assert_eq!(template.to_string(), "user-{header:x-user}@home");
}

#[test]
fn literal_text_alone_is_the_same_for_all() {
    let template = template("everybody");
    assert_eq!(with_nothing(|facts| text_of(template.resolve(facts))).unwrap(), "everybody");
    assert_eq!((&**template.name(), template.to_string()), ("everybody", "everybody".into()));
    assert!(!template.is_client_ip() && !template.is_secret() && template.path_param().is_none());
}

#[test]
fn a_secret_is_marked_as_one() {
    let template = template("{secret:header:authorization}");
    assert!(template.is_secret());
    assert_eq!(&**template.name(), "secret:header:authorization");
    assert_eq!(template.to_string(), "{secret:header:authorization}");
    assert!(self::template("a{secret:query:token}").is_secret());
    assert!(self::template("{secret:client_ip}").is_client_ip());
}

#[test]
fn a_template_knows_what_it_asks_for() {
    assert!(template("{client_ip}").is_client_ip());
    assert!(template("ip {client_ip}").is_client_ip());
    assert!(!template("{header:client_ip}").is_client_ip());
    assert!(template("at {host}").is_host() && !template("{header:host}").is_host());
    assert_eq!(template("{path:id}").path_param(), Some("id"));
    assert_eq!(template("{path}").path_param(), None);
}

#[test]
fn headers_cookies_and_queries_are_chosen_by_the_client() {
    for text in ["{header:x-user}", "{cookie:sid}", "{query:q}", "user {header:x-user}", "{secret:header:a}"]
    {
        assert!(template(text).is_client_chosen(), "{text}");
    }
    for text in ["{client_ip}", "{path}", "{path:header}", "{method}", "{host}", "{route}", "header:q of all"]
    {
        assert!(!template(text).is_client_chosen(), "{text}");
    }
}

#[test]
fn names_may_hold_colons_and_blanks() {
    assert_eq!(&**template("{query:a:b}").name(), "query:a:b");
    let template = template("{query:user id}");
    let named = |facts: &RequestFacts<'_>| {
        let facts = RequestFacts { query: Some("user+id=1"), ..facts.clone() };
        text_of(template.resolve(&facts))
    };
    assert_eq!(with_nothing(named).unwrap(), "1");
}

#[test]
fn what_is_no_template_says_where_and_what_instead() {
    for (text, at, message) in [
        ("", 0, "a key template is empty: write client_ip"),
        ("{client_ip", 0, "a `{` without its `}`"),
        ("a {client_ip", 2, "a `{` without its `}`"),
        ("client_ip", 0, "`client_ip` without braces is the same for every request: write {client_ip}"),
        ("secret:header:a", 0, "`secret:header:a` without braces"),
        ("client_ip}", 9, "a `}` without its `{`"),
        ("a}{client_ip}", 1, "a `}` without its `{`"),
        ("{client_ip}}", 11, "one placeholder in a template is the most"),
        ("{client_ip}-{path}", 12, "one placeholder in a template is the most"),
        ("{}", 1, "`` is not a part of a request: write client_ip, header:NAME"),
        ("{ client_ip }", 1, "` client_ip ` is not a part of a request"),
        ("x{clientip}", 2, "`clientip` is not a part of a request"),
        ("{Client_IP}", 1, "`Client_IP` is not a part of a request"),
        ("{client_ip:v4}", 1, "`client_ip:v4` is not a part of a request"),
        ("{secret:}", 8, "`` is not a part of a request"),
        ("{secret:secret:path}", 8, "`secret:path` is not a part of a request"),
        ("{header}", 7, "`header` needs a name, as in {header:NAME}"),
        ("{secret:cookie}", 14, "`cookie` needs a name, as in {cookie:NAME}"),
        ("{query:}", 7, "a name is missing after `query:`"),
        ("{path:}", 6, "a name is missing after `path:`"),
        ("{header:x user}", 8, "`x user` is not a header name"),
        ("é{header:é}", 10, "`é` is not a header name"),
    ] {
        let (found, said) = error(text);
        assert_eq!(found, at, "{text}: {said}");
        assert!(said.starts_with(message), "{text}: {said}");
    }
}

#[test]
fn templates_have_a_longest() {
    assert!("x".repeat(TEMPLATE_LEN_MAX).parse::<Template>().is_ok());
    let (at, said) = error(&"x".repeat(TEMPLATE_LEN_MAX + 1));
    assert_eq!((at, said.as_str()), (TEMPLATE_LEN_MAX, "a key template has at most 256 bytes"));
    // The place is one at which the text can be cut.
    let (at, _) = error(&format!("{}é", "x".repeat(TEMPLATE_LEN_MAX - 1)));
    assert_eq!(at, TEMPLATE_LEN_MAX - 1);
}

// --- costs ----------------------------------------------------------------------------------------------

fn cost_of(text: Option<&[u8]>) -> Cost {
    let source = CostSource::From { template: template("{header:x-cost}"), min: 2, max: 50, default: 3 };
    let mut headers = HeaderMap::new();
    if let Some(text) = text {
        headers.insert("x-cost", HeaderValue::from_bytes(text).unwrap());
    }
    with_nothing(|facts| source.resolve(&RequestFacts { headers: &headers, ..facts.clone() }))
}

#[test]
fn a_fixed_cost_is_the_same_for_all() {
    assert_eq!(with_facts(|facts| CostSource::Fixed(7).resolve(facts)), 7);
}

#[test]
fn a_cost_from_a_request_is_clamped() {
    for (text, cost) in
        [("2", 2), ("7", 7), ("50", 50), ("0", 2), ("1", 2), ("51", 50), (" 7 ", 7), ("007", 7)]
    {
        assert_eq!(cost_of(Some(text.as_bytes())), cost, "{text}");
    }
    // What does not fit into a number is a large one.
    assert_eq!(cost_of(Some(b"99999999999999999999999")), 50);
}

// R109: a cost of -1 raised the quota. It is no number, and costs what a missing one does.
#[test]
fn a_cost_that_is_no_number_is_the_default() {
    for text in ["-1", "+5", "", " ", "1.5", "1e3", "0x10", "5, 6", "five", "\u{665}", "NaN"] {
        assert_eq!(cost_of(Some(text.as_bytes())), 3, "{text}");
    }
    assert_eq!(cost_of(Some(b"\xff")), 3);
    assert_eq!(cost_of(None), 3);
}

proptest! {
    // F10: whatever is written as a template, it is one or an error at a place inside the text.
    #[test]
    fn any_text_is_a_template_or_an_error(text in prop_oneof![
        any::<String>(),
        "[{}:a-z_ é]{0,20}",
        "(\\{(secret:)?(header|cookie|query|path|client_ip|host)(:[a-z-]{0,4})?\\}?){0,2}",
    ]) {
        match text.parse::<Template>() {
            Ok(template) => {
                prop_assert_eq!(template.to_string(), text);
                with_facts(|facts| { template.resolve(facts); });
                with_nothing(|facts| { template.resolve(facts); });
            }
            Err(error) => prop_assert!(error.at <= text.len() && text.is_char_boundary(error.at)),
        }
    }

    // Two templates of different text never have the same name, so their values never meet in one key.
    #[test]
    fn names_tell_templates_apart(
        one in "(\\{?(secret:)?(header|query):a\\}?|b){1,2}",
        other in "(\\{?(secret:)?(header|query):a\\}?|b){1,2}",
    ) {
        if let (Ok(first), Ok(second)) = (one.parse::<Template>(), other.parse::<Template>()) {
            prop_assert_eq!(first.name() == second.name(), one == other);
        }
    }

    // A cost that a client names is never below the least nor above the most.
    #[test]
    fn costs_stay_in_their_bounds(text in prop_oneof![any::<u64>().prop_map(|number| number.to_string()), "[ -~]{0,12}"]) {
        prop_assert!((2..=50).contains(&cost_of(Some(text.as_bytes()))));
    }
}
