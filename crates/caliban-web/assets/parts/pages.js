// The pages, for the navigation, the palette and the keys.
export const PAGES = [
  { id: "fleet", path: "/", title: "Fleet", icon: "layout-grid", keys: "g f" },
  { id: "asks", path: "/asks", title: "Approvals", short: "Approvals", icon: "inbox", keys: "g a" },
  { id: "new", path: "/new", title: "New agent", short: "New", icon: "plus", keys: "c" },
  { id: "broker", path: "/broker", title: "Broker", icon: "messages-square", keys: "g b" },
  { id: "spend", path: "/spend", title: "Spend", icon: "wallet", keys: "g s" },
  { id: "evening", path: "/evening", title: "Timeline", icon: "chart-gantt", keys: "g t" },
  { id: "search", path: "/search", title: "Search", icon: "search", keys: "g /" },
  { id: "settings", path: "/settings", title: "Settings", icon: "settings", keys: "g ," },
];
