// Which events deserve a notice, and the text of one notice for several. Pure.

/** The kind of notice; null for none. Helpers of agents give none of their own, unless they ask. @param {any} row @param {string | undefined} before */
export function kindOf(row, before) {
  if (row.status === before) return null;
  if (row.status === "asks") return "ask";
  if (row.parent) return null;
  if (row.status === "waits") return "wait";
  if (row.has_ended && row.needs_you) return "failed";
  return row.status === "done" ? "done" : null;
}

/** @param {{ kind: string, row: any }[]} news @returns {{ title: string, body: string, tag: string, path: string } | null} */
export function digest(news) {
  if (news.length === 0) return null;
  if (news.length === 1) {
    const { kind, row } = news[0];
    return { title: `${row.name} · ${row.repo_name}`, body: row.doing ?? row.status, tag: row.key, path: kind === "ask" ? `/asks/${row.key}` : `/agent/${row.key}` };
  }
  const asking = news.filter((it) => it.kind === "ask").length;
  const names = [...new Set(news.map((it) => it.row.name))];
  const more = names.length > 4 ? ` and ${names.length - 4} more` : "";
  return { title: asking > 0 ? `${asking} of ${news.length} agents ask` : `${news.length} agents have news`, body: names.slice(0, 4).join(", ") + more, tag: "several", path: asking > 0 ? "/asks" : "/" };
}
