use alloc::string::ToString;

use super::*;
use crate::time::DurationError;

fn sliding(permits: u64, window: u64) -> Limit {
    Limit::new(permits, Millis(window)).unwrap()
}

#[test]
fn the_grammar_reads_every_form() {
    assert_eq!(parse_limit("5000/1s"), Ok(sliding(5000, 1_000)));
    assert_eq!(parse_limit("10/s"), Ok(sliding(10, 1_000)));
    assert_eq!(parse_limit("100/m"), Ok(sliding(100, 60_000)));
    assert_eq!(parse_limit(" 0 / 5m "), Ok(sliding(0, 300_000)));
    assert_eq!(parse_limits("10/s; 100/m").unwrap(), [sliding(10, 1_000), sliding(100, 60_000)]);
}

#[test]
fn a_rate_is_a_rate() {
    // F32: "per_second(4000)" once meant one per 4000 s.
    let limit = parse_limit("4000/s").unwrap();
    assert_eq!((limit.permits(), limit.window()), (4000, Millis(1_000)));
    assert_eq!(limit.to_string(), "4000/1s");
}

// R108, R109: negative numbers, fractions and other notations were accepted, and raised a quota.
#[test]
fn faults_say_where() {
    let fault = |text: &str| {
        let error = parse_limits(text).unwrap_err();
        (error.at, error.fault)
    };
    assert_eq!(fault(""), (0, ParseLimitFault::Empty));
    assert_eq!(fault("10/s; "), (6, ParseLimitFault::Empty));
    assert_eq!(fault("ten/s"), (0, ParseLimitFault::Permits));
    assert_eq!(fault("-1/s"), (0, ParseLimitFault::Permits));
    assert_eq!(fault("1e3/s"), (0, ParseLimitFault::Permits));
    assert_eq!(fault("1.5/s"), (0, ParseLimitFault::Permits));
    assert_eq!(fault("10"), (2, ParseLimitFault::Slash));
    assert_eq!(fault("10/s; 100/min"), (10, ParseLimitFault::Window(DurationError::Unit { at: 0 })));
    assert_eq!(fault("10/5x"), (4, ParseLimitFault::Window(DurationError::Unit { at: 1 })));
    assert_eq!(fault("10/0s"), (3, ParseLimitFault::Limit(LimitError::Window { window: Millis(0) })));
    assert_eq!(
        fault("4294967296/s"),
        (0, ParseLimitFault::Limit(LimitError::Permits { permits: 4_294_967_296 }))
    );
    assert_eq!(fault(&["1/s"; 17].join(";")).1, ParseLimitFault::TooMany);
}

#[test]
fn extremes_are_typed_errors() {
    // F3, R112, R115: extreme limits rounded to unlimited, or overflowed and panicked.
    assert_eq!(Limit::new(u64::MAX, Millis(1)), Err(LimitError::Permits { permits: u64::MAX }));
    assert_eq!(Limit::new(1, Millis(u64::MAX)), Err(LimitError::Window { window: Millis(u64::MAX) }));
    assert_eq!(Limit::new(1, Millis(0)), Err(LimitError::Window { window: Millis(0) }));
    let widest = Limit::new(u64::from(PERMITS_MAX), WINDOW_MAX).unwrap();
    assert_eq!(widest.permits(), u32::MAX);
    for resolution in [Millis(0), Millis(u64::MAX)] {
        let refused = widest.with_algorithm(Algorithm::SlidingWindow { resolution: Some(resolution) });
        assert_eq!(refused, Err(LimitError::Resolution { resolution, window: WINDOW_MAX }));
    }
    let fine = widest.with_algorithm(Algorithm::SlidingWindow { resolution: Some(Millis(1)) });
    assert_eq!(fine, Err(LimitError::ResolutionTooFine { resolution: Millis(1), finest: Millis(482_520) }));
    assert!(widest.with_algorithm(Algorithm::SlidingWindow { resolution: Some(Millis(482_520)) }).is_ok());
    assert!(matches!(
        widest.with_algorithm(Algorithm::SlidingLog),
        Err(LimitError::SlidingLogTooLong { .. })
    ));
    let slow = sliding(1, 366 * 86_400_000);
    assert_eq!(
        slow.with_algorithm(Algorithm::TokenBucket { burst: 2 }),
        Err(LimitError::BurstRefill { burst: 2 })
    );
    assert_eq!(slow.with_algorithm(Algorithm::TokenBucket { burst: 0 }), Err(LimitError::Burst { burst: 0 }));
    let endless = Algorithm::LeakyBucket { max_delay: Millis(u64::MAX) };
    assert!(matches!(slow.with_algorithm(endless), Err(LimitError::MaxDelay { .. })));
}

#[test]
fn a_burst_and_a_window_whose_product_takes_more_than_64_bits_are_compared_all_the_same() {
    let bucket = Algorithm::TokenBucket { burst: u32::MAX };
    let year = |permits| sliding(permits, 366 * 86_400_000).with_algorithm(bucket);
    assert_eq!(year(1), Err(LimitError::BurstRefill { burst: u32::MAX }));
    assert!(year(u64::from(PERMITS_MAX)).is_ok());
}

#[test]
fn printed_limits_name_what_is_not_the_default() {
    let limit = sliding(10, 1_000);
    let shown = |algorithm| limit.with_algorithm(algorithm).unwrap().to_string();
    assert_eq!(shown(Algorithm::SLIDING_WINDOW), "10/1s");
    assert_eq!(shown(Algorithm::SlidingWindow { resolution: Some(Millis(10)) }), "10/1s resolution 10ms");
    assert_eq!(shown(Algorithm::FixedWindow), "10/1s fixed_window");
    assert_eq!(shown(Algorithm::TokenBucket { burst: 20 }), "10/1s token_bucket burst 20");
    assert_eq!(
        shown(Algorithm::LeakyBucket { max_delay: Millis(500) }),
        "10/1s leaky_bucket max_delay 500ms"
    );
}
