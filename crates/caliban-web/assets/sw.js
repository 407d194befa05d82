// Makes the page installable and opens it from a notice. It caches nothing: content always comes from the server.
self.addEventListener("install", () => self.skipWaiting());
self.addEventListener("activate", (event) => event.waitUntil(self.clients.claim()));
self.addEventListener("notificationclick", (event) => {
  event.notification.close();
  const path = event.notification.data?.path ?? "/";
  event.waitUntil(
    self.clients.matchAll({ type: "window" }).then((pages) => {
      const [page] = pages;
      return page ? page.focus() : self.clients.openWindow(path);
    }),
  );
});
