//! Links between the repository's documents: each must lead to a tracked file or folder.
//!
//! Read are Markdown's `[text](target)` and `[label]: target`, and HTML's `src` and `href`. Not read are code,
//! addresses with a scheme, and the part after `#`.

use std::collections::BTreeSet;

use super::{Fault, File};

/// What begins a target, and what ends it.
const BRACKETS: [(&str, char); 3] = [("](", ')'), ("src=\"", '"'), ("href=\"", '"')];

/// Links of a Markdown file that lead nowhere.
pub(super) fn broken(file: &File<'_>, paths: &BTreeSet<&str>) -> Vec<Fault> {
    let mut faults = Vec::new();
    let mut fence: Option<&str> = None;
    for (index, line) in file.text.lines().enumerate() {
        let marker = fence_of(line);
        match (fence, marker) {
            (None, Some(_)) => fence = marker,
            (Some(open), Some(marker)) if marker.starts_with(open) => fence = None,
            (None, None) => {
                let lost = targets(&without_code(line))
                    .into_iter()
                    .filter(|target| !leads_somewhere(file.path, target, paths))
                    .map(|target| (index + 1, format!("the link `{target}` leads to no tracked file")))
                    .collect::<Vec<_>>();
                faults.extend(lost);
            }
            (Some(_), _) => {}
        }
    }
    faults
}

/// The three or more backquotes or tildes that a line begins with.
fn fence_of(line: &str) -> Option<&str> {
    let line = line.trim_start();
    ['`', '~'].into_iter().find_map(|mark| {
        let fence = &line[..line.len() - line.trim_start_matches(mark).len()];
        (fence.len() >= 3).then_some(fence)
    })
}

/// A line without what stands between backquotes.
fn without_code(line: &str) -> String {
    let mut text = String::new();
    let mut rest = line;
    while let Some(start) = rest.find('`') {
        let after = rest[start..].trim_start_matches('`');
        let fence = &rest[start..rest.len() - after.len()];
        text.push_str(&rest[..start]);
        rest = match after.find(fence) {
            Some(end) => &after[end + fence.len()..],
            None => after,
        };
    }
    text.push_str(rest);
    text
}

fn targets(line: &str) -> Vec<String> {
    let mut targets: Vec<&str> = BRACKETS
        .iter()
        .flat_map(|(open, close)| {
            line.match_indices(open).map(|(at, _)| {
                let rest = &line[at + open.len()..];
                &rest[..rest.find(*close).unwrap_or(rest.len())]
            })
        })
        .collect();
    if line.starts_with('[') && !line.starts_with("[^") {
        targets.extend(line.split_once("]: ").map(|(_, target)| target));
    }
    targets
        .into_iter()
        // Behind the target there may be a title.
        .filter_map(|target| target.split_whitespace().next())
        .map(|target| target.trim_matches(['<', '>']).to_owned())
        .collect()
}

fn leads_somewhere(from: &str, target: &str, paths: &BTreeSet<&str>) -> bool {
    let path = target.split('#').next().unwrap_or_default();
    if path.is_empty() || path.contains("://") || path.starts_with("mailto:") {
        return true;
    }
    let Some(path) = resolve(from, path) else {
        return false;
    };
    let folder = format!("{path}/");
    path.is_empty() || paths.contains(path.as_str()) || paths.iter().any(|known| known.starts_with(&folder))
}

/// The path from the root; `None` if it leads out of the repository.
fn resolve(from: &str, target: &str) -> Option<String> {
    let mut parts: Vec<&str> = match target.strip_prefix('/') {
        Some(_) => Vec::new(),
        None => from.split('/').collect(),
    };
    // The file itself.
    parts.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}
