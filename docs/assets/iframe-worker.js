// Search in pages opened from disk: browsers start no workers there, so the search runs in a hidden frame instead.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      this.frame = document.createElement("iframe")
      this.frame.hidden = true
      this.frame.srcdoc = "<!doctype html>"
      this.ready = new Promise(resolve => {
        this.frame.onload = () => {
          const inside = this.frame.contentWindow
          inside.postMessage = data => this.dispatchEvent(new MessageEvent("message", { data }))
          const script = inside.document.createElement("script")
          script.src = new URL(url, location.href).href
          script.onload = () => resolve(inside)
          inside.document.body.append(script)
        }
      })
      document.body.append(this.frame)
    }

    postMessage(data) {
      this.ready.then(inside => inside.dispatchEvent(new MessageEvent("message", { data })))
    }

    terminate() {
      this.frame.remove()
    }
  }
}
