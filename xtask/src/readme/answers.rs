//! Reads what `curl -i` printed and says whether it is what the quickstart promises.
//!
//! Not a test of headers: the library's own tests go through those. What is verified here is that a
//! stranger's first minute shows the product doing its job.

const PASSES: usize = 5;
const REQUESTS: usize = 7;

/// One HTTP answer.
#[derive(Debug, PartialEq, Eq)]
struct Answer<'a> {
    status: u16,
    headers: Vec<(&'a str, &'a str)>,
    body: &'a str,
}

/// The quickstart's answers: five passed, two denied. Returns how many seconds the last one said to wait.
pub(super) fn verify_quickstart(shown: &str) -> Result<u64, String> {
    let answers = read(shown);
    if answers.len() != REQUESTS {
        return Err(format!("{REQUESTS} requests were sent, and {} answers came back", answers.len()));
    }
    let mut retry_after = 0;
    for (index, answer) in answers.iter().enumerate() {
        let verdict =
            if index < PASSES { passed(answer) } else { denied(answer).map(|seconds| retry_after = seconds) };
        verdict.map_err(|fault| format!("answer {} of {REQUESTS}: {fault}", index + 1))?;
    }
    Ok(retry_after)
}

/// The one answer to a client that came back when it was told to.
pub(super) fn verify_return(shown: &str) -> Result<(), String> {
    match read(shown).as_slice() {
        [answer] => {
            passed(answer).map_err(|fault| format!("the answer after the wait that was asked for: {fault}"))
        }
        answers => Err(format!("1 request was sent, and {} answers came back", answers.len())),
    }
}

fn passed(answer: &Answer<'_>) -> Result<(), String> {
    answer.expect_status(200)?;
    answer.expect_rate_limit_fields()
}

fn denied(answer: &Answer<'_>) -> Result<u64, String> {
    answer.expect_status(429)?;
    answer.expect_rate_limit_fields()?;
    let retry_after = answer.header("retry-after")?;
    let seconds = retry_after
        .parse()
        .ok()
        .filter(|seconds| *seconds >= 1)
        .ok_or_else(|| format!("`retry-after: {retry_after}` is not whole seconds, 1 or more"))?;
    let kind = answer.header("content-type")?;
    if kind != "application/problem+json" {
        return Err(format!("`content-type: {kind}` is not application/problem+json"));
    }
    // Blanks are the serializer's business.
    let body: String = answer.body.split_whitespace().collect();
    if body.starts_with('{') && body.contains("\"violated-policies\":[\"") {
        Ok(seconds)
    } else {
        Err(format!("the body names no violated policy: {}", answer.body))
    }
}

impl<'a> Answer<'a> {
    fn expect_status(&self, status: u16) -> Result<(), String> {
        if self.status == status {
            Ok(())
        } else {
            Err(format!("status {} where {status} is promised", self.status))
        }
    }

    fn expect_rate_limit_fields(&self) -> Result<(), String> {
        self.header("ratelimit-policy")?;
        self.header("ratelimit").map(|_| ())
    }

    fn header(&self, name: &str) -> Result<&'a str, String> {
        self.headers
            .iter()
            .find(|(found, _)| found.eq_ignore_ascii_case(name))
            .map(|(_, value)| *value)
            .ok_or_else(|| format!("no `{name}` header"))
    }
}

/// Cuts at status lines, since a body need not end with a line break. A body that shows a request (`GET /
/// HTTP/1.1`) has no three digits behind the version.
fn read(shown: &str) -> Vec<Answer<'_>> {
    const VERSION: &str = "HTTP/1.1 ";
    let starts: Vec<usize> = shown
        .match_indices(VERSION)
        .map(|(at, _)| at)
        .filter(|at| status(&shown[at + VERSION.len()..]).is_some())
        .collect();
    let ends = starts.iter().skip(1).copied().chain([shown.len()]);
    starts
        .iter()
        .zip(ends)
        .filter_map(|(start, end)| {
            let (head, body) = shown[*start..end].split_once("\r\n\r\n")?;
            Some(Answer {
                status: status(&head[VERSION.len()..])?,
                headers: head
                    .lines()
                    .skip(1)
                    .filter_map(|line| line.split_once(':'))
                    .map(|(name, value)| (name, value.trim()))
                    .collect(),
                body: body.trim(),
            })
        })
        .collect()
}

fn status(text: &str) -> Option<u16> {
    text.get(..3).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSED: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\nratelimit-policy: \"quickstart\";q=5;w=10\r\n\
                          ratelimit: \"quickstart\";r=4;t=10\r\n\r\nGET / HTTP/1.1\nhost: localhost:8080\n";
    const DENIED: &str = "HTTP/1.1 429 Too Many Requests\r\nRetry-After: 10\r\nRateLimit: \"quickstart\";r=0;t=10\r\n\
                          RateLimit-Policy: \"quickstart\";q=5;w=10\r\nContent-Type: application/problem+json\r\n\r\n\
                          {\"status\":429,\"violated-policies\":[\"quickstart\"]}";

    fn quickstart(passed: usize, denied: &[&str]) -> Result<u64, String> {
        verify_quickstart(&format!("{}{}", PASSED.repeat(passed), denied.concat()))
    }

    #[test]
    fn five_passed_and_two_denied_are_what_is_promised() {
        assert_eq!(quickstart(5, &[DENIED, DENIED]), Ok(10));
        let sooner = DENIED.replace("Retry-After: 10", "retry-after: 9");
        assert_eq!(quickstart(5, &[DENIED, &sooner]), Ok(9));
    }

    #[test]
    fn too_many_or_too_few_that_passed_are_told_with_their_place() {
        assert_eq!(quickstart(6, &[DENIED]).unwrap_err(), "answer 6 of 7: status 200 where 429 is promised");
        assert_eq!(
            quickstart(4, &[DENIED, DENIED, DENIED]).unwrap_err(),
            "answer 5 of 7: status 429 where 200 is promised"
        );
        assert_eq!(quickstart(0, &[]).unwrap_err(), "7 requests were sent, and 0 answers came back");
    }

    #[test]
    fn a_denial_that_lacks_anything_promised_is_refused() {
        for (there, instead, fault) in [
            ("Retry-After: 10\r\n", "", "no `retry-after` header"),
            ("Retry-After: 10", "Retry-After: 0", "`retry-after: 0` is not whole seconds, 1 or more"),
            ("Retry-After: 10", "Retry-After: 9.5", "`retry-after: 9.5` is not whole seconds, 1 or more"),
            ("RateLimit: ", "X-RateLimit: ", "no `ratelimit` header"),
            ("RateLimit-Policy: ", "X-Policy: ", "no `ratelimit-policy` header"),
            ("problem+json", "json", "`content-type: application/json` is not application/problem+json"),
            ("{\"status\"", "status", "the body names no violated policy: status:429"),
            ("[\"quickstart\"]", "[]", "the body names no violated policy: {\"status\":429"),
        ] {
            let broken = DENIED.replace(there, instead);
            assert_ne!(broken, DENIED, "{there}");
            let told = quickstart(5, &[DENIED, &broken]).unwrap_err();
            assert!(told.starts_with(&format!("answer 7 of 7: {fault}")), "{told}");
        }
    }

    #[test]
    fn whoever_comes_back_in_time_must_pass() {
        assert_eq!(verify_return(PASSED), Ok(()));
        assert_eq!(
            verify_return(DENIED).unwrap_err(),
            "the answer after the wait that was asked for: status 429 where 200 is promised"
        );
        assert_eq!(verify_return("").unwrap_err(), "1 request was sent, and 0 answers came back");
    }
}
